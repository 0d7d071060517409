package payments_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/gateway"
)

func TestCancel(t *testing.T) {
	t.Parallel()

	t.Run("Ends", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		for _, method := range []string{`,"payment_method":"pm_card_visa"`, ""} {
			pi := me.post(intents, `{"amount":1000,"currency":"EUR"`+method+`}`).is(201).id()
			key := uuid.NewString()
			first := me.keyed(key, cancelPath(pi), "").is(200)
			require.Equal(t, "canceled", first.str("status"))
			again := me.keyed(key, cancelPath(pi), "{}").is(200)
			require.Equal(t, first.raw, again.raw)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			require.Equal(t, []string{"payment_intent.created", "payment_intent.canceled"}, b.told(pi))
		}
		me.post(cancelPath(me.created("pm_card_visa")), `{"reason":"x"}`).is(400, "parameter_unknown")
	})

	t.Run("TwoAtOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		for range 20 {
			pi := me.created("pm_card_visa")
			answers := b.inParallel(2, func(int) (answer, error) {
				return me.key(uuid.NewString()).do(t.Context(), http.MethodPost, cancelPath(pi), nil)
			})
			require.Equal(t, map[int]int{200: 1, 409: 1}, statuses(answers))
			require.Equal(t, []string{"payment_intent.created", "payment_intent.canceled"}, b.told(pi))
		}
	})
}

func TestCreateWithConfirm(t *testing.T) {
	t.Parallel()
	const body = `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"`

	t.Run("Succeeds", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		a := b.me().keyed("k", intents, body+`pm_card_visa"}`).is(201)
		require.Equal(t, "succeeded", a.str("status"))
		require.Equal(t, intents+"/"+a.id(), a.header.Get("Location"))
		again := b.me().keyed("k", intents, body+`pm_card_visa"}`).is(201)
		require.Equal(t, a.raw, again.raw)
		require.Equal(t, a.header.Get("Location"), again.header.Get("Location"))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(a.id()))
		b.contract()
	})

	t.Run("Declined", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		a := b.me().keyed("k", intents, body+`pm_card_declined"}`).is(402, "card_declined")
		pi := a.str("payment_intent")
		require.Equal(t, "requires_payment_method", b.me().intent(pi).str("status"))
		require.Equal(t, a.raw, b.me().keyed("k", intents, body+`pm_card_declined"}`).is(402).raw)
		require.Equal(t, []string{"payment_intent.created", "payment_intent.payment_failed"}, b.told(pi))
	})

	t.Run("NotExecutedKeepsTheIntent", func(t *testing.T) {
		t.Parallel()
		var gw *unreachable
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = &unreachable{Gateway: inner}
			return gw
		}))
		me := b.me()
		gw.down.Store(true)
		a := me.keyed("k", intents, body+`pm_card_visa"}`).is(503, "gateway_unavailable")
		pi := a.str("payment_intent")
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		require.Equal(t, pi, me.keyed("k", intents, body+`pm_card_visa"}`).is(503).str("payment_intent"))
		gw.down.Store(false)
		ok := me.keyed("k", intents, body+`pm_card_visa"}`).is(201)
		require.Equal(t, pi, ok.id())
		require.Equal(t, intents+"/"+pi, ok.header.Get("Location"))
		require.Equal(t, 3, b.count(`SELECT count(*) FROM apipay.payment_attempts`))
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
		b.contract()
	})

	t.Run("AnotherKeyWasFaster", func(t *testing.T) {
		t.Parallel()
		var gw *unreachable
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = &unreachable{Gateway: inner}
			return gw
		}))
		me := b.me()
		gw.down.Store(true)
		pi := me.keyed("k", intents, body+`pm_card_visa"}`).is(503).str("payment_intent")
		gw.down.Store(false)
		me.keyed("l", confirmPath(pi), "").is(200)
		a := me.keyed("k", intents, body+`pm_card_visa"}`).is(409, "invalid_state")
		require.Equal(t, pi, a.str("payment_intent"))
		require.Equal(t, a.raw, me.keyed("k", intents, body+`pm_card_visa"}`).is(409).raw)
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("FiftyAtOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		answers := b.inParallel(50, func(int) (answer, error) {
			return b.me().key("k").do(t.Context(), http.MethodPost, intents, []byte(body+`pm_card_visa"}`))
		})
		pi := b.me().keyed("k", intents, body+`pm_card_visa"}`).is(201).id()
		for _, a := range answers {
			if a.status == 201 {
				require.Equal(t, pi, a.id())
				continue
			}
			a.is(409, "idempotency_in_progress")
		}
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
	})
}
