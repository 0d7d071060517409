package payments_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/gateway"
)

func confirmPath(pi string) string { return intents + "/" + pi + "/confirm" }
func cancelPath(pi string) string  { return intents + "/" + pi + "/cancel" }
func refundPath(pi string) string  { return intents + "/" + pi + "/refunds" }

func TestConfirm(t *testing.T) {
	t.Parallel()

	t.Run("Charges", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.created("pm_card_visa")
		a := me.post(confirmPath(pi), "").is(200)
		require.Equal(t, "succeeded", a.str("status"))
		require.Equal(t, "pm_card_visa", a.str("payment_method"))
		require.Empty(t, a.header.Get("Location"))
		require.Equal(t, a.raw, me.intent(pi).raw)
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_attempts`))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
		require.Equal(t, []string{"payment_attempt.started", "payment_attempt.succeeded"}, b.told(a.str("latest_attempt"), "apipay.payment-events.v1"))
		b.contract()
	})

	t.Run("TakesThePaymentMethodGiven", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.post(intents, `{"amount":1000,"currency":"EUR"}`).is(201).id()
		a := me.keyed("k", confirmPath(pi), `{}`).is(409, "invalid_state")
		require.Equal(t, "requires_payment_method", a.str("intent_status"))
		require.Equal(t, pi, a.str("payment_intent"))
		// That state can change, so it was not stored.
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.idempotency_keys WHERE key = 'k'`))
		require.Equal(t, "succeeded", me.keyed("k", confirmPath(pi), `{"payment_method":"pm_card_visa"}`).is(200).str("status"))
		me.post(confirmPath(me.created("pm_card_declined")), `{"payment_method":"pm_card_visa"}`).is(200)
		me.post(confirmPath(pi), `{"payment_method":"visa"}`).is(422, "parameter_invalid")
		me.post(confirmPath(pi), `{"amount":1}`).is(400, "parameter_unknown")
	})

	t.Run("RefusesAnUnknownID", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.me().created("pm_card_visa")
		stranger := b.as(b.b)
		random := "pi_01kdqx7h2ge9wbe8zrb7b8s3mt"
		for _, path := range []func(string) string{confirmPath, cancelPath, refundPath} {
			foreign := stranger.post(path(pi), "").is(404, "not_found")
			unknown := stranger.post(path(random), "").is(404, "not_found")
			require.Equal(t, neutral(unknown, random), neutral(foreign, pi))
			b.me().live().post(path(pi), "").is(404, "not_found")
		}
		for _, path := range []func(string) string{func(pi string) string { return intents + "/" + pi }, refundPath} {
			require.Equal(t, neutral(stranger.get(path(random)).is(404), random), neutral(stranger.get(path(pi)).is(404), pi))
		}
		for _, broken := range []string{"x", "pi_x", strings.ToUpper(pi), pi + "0", "re_" + pi[3:], "pi_81kdqx7h2ge9wbe8zrb7b8s3mt", "..%2f"} {
			b.me().post(confirmPath(broken), "").is(404, "not_found")
			b.me().get(intents+"/"+broken).is(404, "not_found")
		}
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.payment_attempts`))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.idempotency_keys`))
	})

	t.Run("RefusesAFinalState", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("1000", "pm_card_visa")
		a := me.keyed("k", confirmPath(pi), "").is(409, "invalid_state")
		require.Equal(t, "succeeded", a.str("intent_status"))
		again := me.keyed("k", confirmPath(pi), "").is(409)
		require.Equal(t, a.raw, again.raw)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		me.keyed("l", cancelPath(pi), "").is(409, "invalid_state")
		require.Equal(t, "true", me.keyed("l", cancelPath(pi), "").is(409).header.Get("Idempotent-Replayed"))
		canceled := me.created("pm_card_visa")
		me.post(cancelPath(canceled), "").is(200)
		require.Equal(t, "canceled", me.post(confirmPath(canceled), "").is(409, "invalid_state").str("intent_status"))
		require.Equal(t, 1, b.charges(pi))
		require.Zero(t, b.charges(canceled))
	})

	t.Run("TellsADecline", func(t *testing.T) {
		t.Parallel()
		for method, code := range map[string]string{"pm_card_declined": "generic_decline", "pm_card_insufficient_funds": "insufficient_funds"} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				me := b.me()
				pi := me.created(method)
				first := me.keyed("k", confirmPath(pi), "").is(402, "card_declined")
				require.Equal(t, code, first.str("decline_code"))
				require.Equal(t, pi, first.str("payment_intent"))
				require.Equal(t, confirmPath(pi), first.str("instance"))
				p := me.intent(pi)
				require.Equal(t, "requires_payment_method", p.str("status"))
				require.Nil(t, p.body()["payment_method"])
				require.Equal(t, map[string]any{"code": "card_declined", "decline_code": code, "message": "The card was declined."}, p.body()["last_payment_error"])
				require.Equal(t, []string{"payment_intent.created", "payment_intent.payment_failed"}, b.told(pi))
				// D10: the stored answer stands, even when the card would pass; a new key tries again.
				me.keyed("l", confirmPath(pi), `{"payment_method":"pm_card_visa"}`).is(200)
				again := me.keyed("k", confirmPath(pi), "").is(402)
				require.Equal(t, first.raw, again.raw)
				require.Equal(t, first.str("request_id"), first.header.Get("X-Request-Id"))
				require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
				require.Nil(t, me.intent(pi).body()["last_payment_error"])
				require.Equal(t, 1, b.charges(pi))
				b.contract()
			})
		}
	})

	t.Run("TheTenthDeclineCancels", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.created("pm_card_declined")
		for n := 1; n <= 10; n++ {
			me.post(confirmPath(pi), `{"payment_method":"pm_card_declined"}`).is(402, "card_declined")
			if n < 10 {
				require.Equal(t, "requires_payment_method", me.intent(pi).str("status"))
			}
			// What was never executed does not count.
			me.post(confirmPath(pi), `{"payment_method":"pm_gateway_unavailable"}`)
		}
		require.Equal(t, "canceled", me.intent(pi).str("status"))
		told := b.told(pi)
		require.Len(t, told, 12)
		require.Equal(t, "payment_intent.canceled", told[11])
		me.post(confirmPath(pi), `{"payment_method":"pm_card_visa"}`).is(409, "invalid_state")
		require.Zero(t, b.charges(pi))
		b.contract()
	})

	t.Run("NotExecutedFreesTheKey", func(t *testing.T) {
		t.Parallel()
		var gw *unreachable
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = &unreachable{Gateway: inner}
			return gw
		}))
		me := b.me()
		pi := me.created("pm_card_visa")
		before := me.intent(pi)
		gw.down.Store(true)
		a := me.keyed("k", confirmPath(pi), "").is(503, "gateway_unavailable")
		require.Regexp(t, `^[1-9][0-9]*$`, a.header.Get("Retry-After"))
		after := me.intent(pi).body()
		require.NotNil(t, after["latest_attempt"])
		after["latest_attempt"] = nil
		require.Equal(t, before.body(), after)
		require.Zero(t, b.charges(pi))
		require.Equal(t, []string{"payment_intent.created"}, b.told(pi))
		gw.down.Store(false)
		me.keyed("k", confirmPath(pi), "").is(200)
		me.keyed("k", confirmPath(pi), "").is(200)
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
		b.contract()
	})

	t.Run("WithoutAConnectorNothingBegins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me().live()
		pi := me.created("pm_anything")
		me.keyed("k", confirmPath(pi), "").is(503, "gateway_unavailable")
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		a := me.keyed("c", intents, `{"amount":1,"currency":"EUR","payment_method":"pm_x","confirm":true}`).is(503, "gateway_unavailable")
		require.Equal(t, "requires_confirmation", me.intent(a.str("payment_intent")).str("status"))
		// The key stays bound to that intent.
		require.Equal(t, a.str("payment_intent"),
			me.keyed("c", intents, `{"amount":1,"currency":"EUR","payment_method":"pm_x","confirm":true}`).is(503).str("payment_intent"))
		me.keyed("c", intents, `{"amount":2,"currency":"EUR","payment_method":"pm_x","confirm":true}`).is(422, "idempotency_key_reused")
		me.post(confirmPath("pi_01kdqx7h2ge9wbe8zrb7b8s3mt"), "").is(404, "not_found")
		require.Equal(t, 2, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		require.Equal(t, []string{"payment_intent.created"}, b.told(a.str("payment_intent")))
	})

	t.Run("InParallelChargesOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range rounds(200) { // B5
			pi := b.me().created("pm_card_visa")
			n := statuses(b.inParallel(4, func(int) (answer, error) {
				return b.me().key(uuid.NewString()).do(t.Context(), http.MethodPost, confirmPath(pi), nil)
			}))
			require.Equal(t, 1, n[200])
			require.Equal(t, 3, n[409])
			require.Equal(t, 1, b.charges(pi))
			require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
		}
	})

	t.Run("AgainstCancelExactlyOneWins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.reconciling(b.service)
		for range rounds(200) { // B6
			pi := b.me().created("pm_card_visa")
			answers := b.inParallel(2, func(i int) (answer, error) {
				path := []string{confirmPath(pi), cancelPath(pi)}[i]
				return b.me().key(uuid.NewString()).do(t.Context(), http.MethodPost, path, nil)
			})
			require.Equal(t, map[int]int{200: 1, 409: 1}, statuses(answers))
			status := b.me().intent(pi).str("status")
			if answers[0].status == 200 {
				require.Equal(t, "succeeded", status)
				require.Equal(t, 1, b.charges(pi))
			} else {
				require.Equal(t, "canceled", status)
				require.Zero(t, b.charges(pi))
			}
			require.Equal(t, []string{"payment_intent.created", "payment_intent." + status}, b.told(pi))
		}
	})

	t.Run("ProcessingRefusesOtherKeys", func(t *testing.T) {
		t.Parallel()
		var gw *holding
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = newHolding(inner)
			return gw
		}))
		me := b.me()
		pi := me.created("pm_card_visa")
		done := make(chan answer, 1)
		go func() {
			a, _ := me.key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
			done <- a
		}()
		<-gw.arrived
		require.Equal(t, "processing", me.intent(pi).str("status"))
		for _, path := range []string{confirmPath(pi), cancelPath(pi), refundPath(pi)} {
			a := me.keyed("l", path, "").is(409, "invalid_state")
			require.Equal(t, "processing", a.str("intent_status"))
			require.Equal(t, "1", a.header.Get("Retry-After"))
			require.Equal(t, true, a.body()["retryable"])
		}
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.idempotency_keys WHERE key = 'l'`))
		a := me.keyed("k", confirmPath(pi), "").is(409, "idempotency_in_progress")
		require.Equal(t, "1", a.header.Get("Retry-After"))
		// B02: another body is refused at once, while the first still runs.
		me.keyed("k", confirmPath(pi), `{"payment_method":"pm_card_visa"}`).is(422, "idempotency_key_reused")
		me.keyed("k", confirmPath(me.created("pm_card_visa")), "").is(422, "idempotency_key_reused")
		close(gw.letGo)
		first := <-done
		require.Equal(t, 200, first.status)
		require.Equal(t, first.raw, me.keyed("k", confirmPath(pi), "").is(200).raw)
	})

	t.Run("AClientThatHangsUpChangesNothing", func(t *testing.T) {
		t.Parallel()
		var gw *holding
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = newHolding(inner)
			return gw
		}))
		me := b.me()
		pi := me.created("pm_card_visa")
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = me.key("k").do(ctx, http.MethodPost, confirmPath(pi), nil)
		}()
		<-gw.arrived
		hangUp()
		<-gone
		close(gw.letGo)
		me.becomes(pi, "succeeded")
		a := me.keyed("k", confirmPath(pi), "").is(200)
		require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("HangingUpAtAnyMoment", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		for i := range 40 {
			pi := me.created("pm_card_visa")
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			_, _ = me.key("k"+pi).do(ctx, http.MethodPost, confirmPath(pi), nil)
			cancel()
			b.until(func() bool { return me.intent(pi).str("status") != "processing" }, "stays processing")
			b.until(func() bool { return me.keyed("k"+pi, confirmPath(pi), "").status == 200 }, "no answer")
			require.Equal(t, 1, b.charges(pi))
		}
	})
}
