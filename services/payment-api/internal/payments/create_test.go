package payments_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/payments"
)

func TestCreate(t *testing.T) {
	t.Parallel()

	t.Run("ShowsTheWholeObject", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		a := me.post(intents, `{"amount":1000,"currency":"eur","description":"A&B <b> \"q\" \u2028 😀","metadata":{"b":"2","a":"1"},"merchant_reference":"order-7"}`).is(201)
		body := a.body()
		require.Equal(t, "/v1/payment-intents/"+a.id(), a.header.Get("Location"))
		require.Empty(t, a.header.Get("Idempotent-Replayed"))
		require.InDelta(t, float64(b.count(`SELECT extract(epoch FROM now())::bigint`)), body["created"], 5)
		delete(body, "created")
		require.Equal(t, map[string]any{
			"id": a.id(), "object": "payment_intent", "amount": 1000.0, "amount_refunded": 0.0, "currency": "EUR",
			"status": "requires_payment_method", "livemode": false, "description": "A&B <b> \"q\" \u2028 😀",
			"metadata": map[string]any{"a": "1", "b": "2"}, "merchant_reference": "order-7", "payment_method": nil,
			"last_payment_error": nil, "latest_attempt": nil, "version": 1.0,
		}, body)
		require.Equal(t, a.raw, me.intent(a.id()).raw)
		require.Equal(t, []string{"payment_intent.created"}, b.told(a.id()))
		b.contract()

		a = me.post(intents, `{"amount":1,"currency":"JPY","payment_method":"pm_card_visa","description":null,"merchant_reference":null}`).is(201)
		require.Equal(t, "requires_confirmation", a.str("status"))
		require.Equal(t, "{}", strings.ReplaceAll(fmt.Sprint(a.body()["metadata"]), "map[]", "{}"))
	})

	t.Run("MerchantReferenceIsUniquePerTenantAndMode", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		body := `{"amount":1000,"currency":"EUR","merchant_reference":"order-7"}`
		b.me().post(intents, body).is(201)
		b.me().keyed("k", intents, body).is(409, "merchant_reference_in_use")
		b.as(b.b).post(intents, body).is(201)
		b.me().live().post(intents, body).is(201)
		// The key was not consumed.
		b.me().keyed("k", intents, `{"amount":1000,"currency":"EUR","merchant_reference":"order-8"}`).is(201)
	})

	t.Run("NeedsAKey", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me, body := b.me(), `{"amount":1000,"currency":"EUR"}`
		pi := me.created("pm_card_visa")
		for _, path := range []string{intents, intents + "/" + pi + "/confirm", intents + "/" + pi + "/cancel", intents + "/" + pi + "/refunds"} {
			send := body
			if path != intents {
				send = ""
			}
			me.send(http.MethodPost, path, send).is(400, "idempotency_key_required")
		}
		for _, key := range []string{strings.Repeat("k", 256), "a b", "a\tb", "ü", ""} {
			me.keyed(key, intents, body).is(400, "idempotency_key_invalid")
		}
		me.with("Idempotency-Key", "a").with("Idempotency-Key", "b").send(http.MethodPost, intents, body).is(400, "idempotency_key_invalid")
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		first := me.keyed(`"8e03978e-40d5-43dd-bc93-6894a57f9324"`, intents, body).is(201)
		second := me.keyed(`8e03978e-40d5-43dd-bc93-6894a57f9324`, intents, body).is(201)
		require.Equal(t, first.raw, second.raw)
		require.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
	})

	t.Run("RefusesAmounts", func(t *testing.T) {
		t.Parallel()
		b := setup(t, withConfig(func(c *payments.Config) { c.AmountMin = payments.AmountMin{"USD": 50} }))
		me := b.me()
		for token, want := range map[string]struct {
			status int
			code   string
		}{
			"100.0": {400, "invalid_request"}, "1e2": {400, "invalid_request"}, `"100"`: {400, "invalid_request"},
			"null": {400, "invalid_request"}, "true": {400, "invalid_request"}, "-0": {400, "invalid_request"},
			"0": {422, "amount_too_small"}, "-1": {422, "amount_too_small"}, "49": {422, "amount_too_small"},
			"100000000": {422, "amount_too_large"}, "9223372036854775808": {422, "amount_too_large"},
			"-9223372036854775809": {422, "amount_too_small"},
		} {
			a := me.post(intents, `{"amount":`+token+`,"currency":"USD"}`).is(want.status, want.code)
			require.Contains(t, a.raw, `"pointer":"/amount"`, token)
		}
		a := me.post(intents, `{"currency":"USD"}`).is(400, "parameter_missing")
		require.Contains(t, a.raw, `"pointer":"/amount"`)
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.idempotency_keys`))
		for _, body := range []string{
			`{"amount":99999999,"currency":"USD"}`, `{"amount":50,"currency":"usd"}`, `{"amount":1,"currency":"EUR"}`,
			`{"amount":500,"currency":"JPY"}`, `{"amount":5000,"currency":"KWD"}`,
		} {
			me.post(intents, body).is(201)
		}
	})

	t.Run("ChargesMinorUnits", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for currency, amount := range map[string]int64{"JPY": 80, "KWD": 1234} {
			a := b.me().post(intents, fmt.Sprintf(`{"amount":%d,"currency":%q,"payment_method":"pm_card_visa","confirm":true}`, amount, currency)).is(201)
			require.Equal(t, amount, a.num("amount"))
			require.EqualValues(t, amount, b.count(`SELECT amount FROM apipay.sandbox_charges WHERE currency = $1`, currency))
		}
		b.contract()
	})

	t.Run("RefusesCurrencies", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, code := range []string{"US", "XXX", "usd ", "EUR ", "DOGE", "JPYY", "", "ABC", "ÜSD", "\u0131nr", "XTS"} {
			a := b.me().post(intents, fmt.Sprintf(`{"amount":1000,"currency":%q}`, code)).is(422, "currency_invalid")
			require.Contains(t, a.raw, `"pointer":"/currency"`)
		}
		for _, code := range []string{"usd", "USD", "uSd"} {
			require.Equal(t, "USD", b.me().post(intents, fmt.Sprintf(`{"amount":1000,"currency":%q}`, code)).is(201).str("currency"))
		}
		require.Equal(t, "TRY", b.me().post(intents, `{"amount":1000,"currency":"try"}`).is(201).str("currency"))
	})

	t.Run("RefusesJSON", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for body, code := range map[string]string{
			`{"amount":100,"amount":1,"currency":"EUR"}`:           "invalid_request",
			`{"amount":100,"AMOUNT":1,"currency":"EUR"}`:           "parameter_unknown",
			`{"amount":100,"currency":"EUR"}{}`:                    "invalid_request",
			`{"amount":100,"currency":"EUR"} garbage`:              "invalid_request",
			`{"amount":100,"currency":"EUR","tenant_id":"x"}`:      "parameter_unknown",
			`{"amount":100,"currency":"EUR","Status":"succeeded"}`: "parameter_unknown",
			``:   "invalid_request",
			`[]`: "invalid_request",
			`{"amount":100,"currency":"EUR","description":"a\u0000b"}`:           "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":{"a\u0000b":"x"}}`:        "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":{"a":"x\u0000"}}`:         "invalid_request",
			`{"amount":100,"currency":"EUR","description":"\ud83d"}`:             "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":{"n":"\udc00x"}}`:         "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":null}`:                    "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":["a"]}`:                   "invalid_request",
			`{"amount":100,"currency":"EUR","metadata":{"n":{"a":"\u0000"}}}`:    "invalid_request",
			"{\"amount\":100,\"currency\":\"EUR\",\"description\":\"\xff\xfe\"}": "invalid_request",
			`{"amount":100,"currency":"EUR","confirm":"yes"}`:                    "invalid_request",
		} {
			b.me().keyed("k", intents, body).is(400, code)
		}
		b.me().keyed("k", intents, `{"amount":100,"currency":"EUR","description":"`+strings.Repeat("x", 64<<10)+`"}`).is(413, "payload_too_large")
		b.me().key("k").with("Content-Type", "text/plain").send(http.MethodPost, intents, `{"amount":100,"currency":"EUR"}`).is(415, "unsupported_media_type")
		b.me().keyed("k", intents+"?x=1", `{"amount":100,"currency":"EUR"}`).is(400, "invalid_request")
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		// None of them took the key.
		b.me().keyed("k", intents, `{"amount":100,"currency":"EUR"}`).is(201)
	})

	t.Run("RefusesTexts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		metadata := func(n, keyLength int, value string) string {
			pairs := make([]string, n)
			for i := range pairs {
				name := fmt.Sprintf("%d", i)
				pairs[i] = fmt.Sprintf("%q:%q", name+strings.Repeat("ü", keyLength-len(name)), value)
			}
			return `"metadata":{` + strings.Join(pairs, ",") + `}`
		}
		send := func(members string) answer {
			return b.me().post(intents, `{"amount":1000,"currency":"EUR",`+members+`}`)
		}
		send(metadata(50, 40, "x")).is(201)
		send(metadata(1, 40, strings.Repeat("😀", 500))).is(201)
		for members, pointer := range map[string]string{
			metadata(51, 3, "x"):                                      "/metadata",
			metadata(1, 41, "x"):                                      "/metadata/0" + strings.Repeat("ü", 40),
			metadata(1, 1, strings.Repeat("😀", 501)):                  "/metadata/0",
			`"metadata":{"a[b]":"x"}`:                                 "/metadata/a[b]",
			`"metadata":{"a/~[":"x"}`:                                 "/metadata/a~1~0[",
			`"description":"` + strings.Repeat("é", 1001) + `"`:       "/description",
			`"metadata":{"a":{"b":1}}`:                                "/metadata/a",
			`"metadata":{"a":1}`:                                      "/metadata/a",
			`"metadata":{"a/b":null}`:                                 "/metadata/a~1b",
			`"metadata":{"a":["x"]}`:                                  "/metadata/a",
			`"merchant_reference":"` + strings.Repeat("r", 256) + `"`: "/merchant_reference",
			`"merchant_reference":""`:                                 "/merchant_reference",
			`"merchant_reference":"a\nb"`:                             "/merchant_reference",
			`"merchant_reference":"a\u0085b"`:                         "/merchant_reference",
			`"payment_method":"4242424242424242"`:                     "/payment_method",
			`"payment_method":"pm_"`:                                  "/payment_method",
			`"payment_method":"pm_a b"`:                               "/payment_method",
			`"payment_method":"pm_card_vsia"`:                         "/payment_method",
			`"payment_method":"pm_` + strings.Repeat("a", 98) + `"`:   "/payment_method",
		} {
			a := send(members).is(422, "parameter_invalid")
			require.Equal(t, pointer, a.body()["errors"].([]any)[0].(map[string]any)["pointer"], a.raw)
		}
		send(`"confirm":true`).is(400, "parameter_missing")
		send(`"description":"","metadata":{"":""}`).is(201)
		a := send(`"merchant_reference":"","payment_method":"x","metadata":{"[":"x"}`).is(422, "parameter_invalid")
		require.Len(t, a.body()["errors"], 3, "all of it is told at once")
		a = send(`"metadata":{"a":1,"b":"x","c":[]}`).is(422, "parameter_invalid")
		require.Len(t, a.body()["errors"], 2)
		// Free text is kept as it was sent, whatever a terminal would make of it.
		a = send(`"description":"\u0001\u0007\t\r\n\u007f\u0085","metadata":{"\u0007":"\u001b[0m\u009f"}`).is(201)
		require.Equal(t, "\x01\a\t\r\n\x7f\u0085", a.str("description"))
		require.Equal(t, map[string]any{"\a": "\x1b[0m\u009f"}, a.body()["metadata"])
		require.Equal(t, a.raw, b.me().intent(a.id()).raw)
	})
}

func TestAmountMin(t *testing.T) {
	t.Parallel()
	var m payments.AmountMin
	require.NoError(t, m.UnmarshalText([]byte("USD=50, eur=70")))
	require.Equal(t, payments.AmountMin{"USD": 50, "EUR": 70}, m)
	require.NoError(t, m.UnmarshalText(nil))
	require.Empty(t, m)
	for _, text := range []string{"USD", "USD=0", "USD=x", "XXX=5", "USD=5,usd=6", "USD=100000000", ","} {
		require.Error(t, m.UnmarshalText([]byte(text)), text)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, payments.DefaultConfig().Validate())
	for _, change := range []func(*payments.Config){
		func(c *payments.Config) { c.GatewayTimeout = 0 },
		func(c *payments.Config) { c.Lease = c.GatewayTimeout },
		func(c *payments.Config) { c.VisibilityDelay = -1 },
		func(c *payments.Config) { c.KeyTTL = 0 },
	} {
		c := payments.DefaultConfig()
		change(&c)
		require.Error(t, c.Validate())
	}
}
