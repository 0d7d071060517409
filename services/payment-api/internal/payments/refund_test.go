package payments_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/gateway"
)

func TestRefund(t *testing.T) {
	t.Parallel()

	t.Run("ShowsTheWholeObject", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("1000", "pm_card_visa")
		a := me.keyed("k", refundPath(pi), `{"amount":300,"reason":"too big","metadata":{"a":"1"}}`).is(201)
		require.Equal(t, "/v1/refunds/"+a.id(), a.header.Get("Location"))
		body := a.body()
		require.NotZero(t, body["created"])
		delete(body, "created")
		require.Equal(t, map[string]any{
			"id": a.id(), "object": "refund", "payment_intent": pi, "amount": 300.0, "currency": "EUR", "status": "succeeded",
			"failure_reason": nil, "reason": "too big", "metadata": map[string]any{"a": "1"}, "livemode": false, "version": 2.0,
		}, body)
		require.Equal(t, a.raw, me.get("/v1/refunds/"+a.id()).is(200).raw)
		again := me.keyed("k", refundPath(pi), `{"metadata":{"a":"1"},"reason":"too big","amount":300}`).is(201)
		require.Equal(t, a.raw, again.raw)
		require.Equal(t, a.header.Get("Location"), again.header.Get("Location"))
		p := me.intent(pi)
		require.EqualValues(t, 300, p.num("amount_refunded"))
		require.EqualValues(t, 2, p.num("version"), "amount_refunded moves without the version")
		require.Equal(t, []string{"refund.created", "refund.succeeded"}, b.told(a.id()))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE kind = 'refund' AND amount = 300`))
		// Without an amount: the rest.
		require.EqualValues(t, 700, me.post(refundPath(pi), "").is(201).num("amount"))
		me.post(refundPath(pi), "").is(422, "refund_exceeds_remaining")
		b.contract()
	})

	t.Run("RefusesAmounts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("700", "pm_card_visa")
		me.post(refundPath(pi), `{"amount":0}`).is(422, "amount_too_small")
		me.post(refundPath(pi), `{"amount":-500}`).is(422, "amount_too_small")
		me.post(refundPath(pi), `{"amount":1.5}`).is(400, "invalid_request")
		me.post(refundPath(pi), `{"amount":null}`).is(400, "invalid_request")
		me.post(refundPath(pi), `{"amount":1,"currency":"EUR"}`).is(400, "parameter_unknown")
		me.post(refundPath(pi), `{"metadata":"x"}`).is(400, "invalid_request")
		a := me.post(refundPath(pi), `{"reason":"a\nb\u0007","metadata":{"a":{"b":1}}}`).is(422, "parameter_invalid")
		require.Contains(t, a.raw, `"pointer":"/metadata/a"`)
		a = me.keyed("k", refundPath(pi), `{"amount":701}`).is(422, "refund_exceeds_remaining")
		require.Equal(t, a.raw, me.keyed("k", refundPath(pi), `{"amount":701}`).is(422).raw)
		me.post(refundPath(pi), `{"amount":1}`).is(201)
		me.post(refundPath(pi), `{"amount":299}`).is(201)
		me.post(refundPath(pi), `{"amount":400}`).is(201)
		me.post(refundPath(pi), `{"amount":1}`).is(422, "refund_exceeds_remaining")
		require.Equal(t, 700, b.count(`SELECT sum(amount) FROM apipay.refunds WHERE status <> 'failed'`))
	})

	t.Run("OnlyOfASucceededIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.created("pm_card_visa")
		me.keyed("k", refundPath(pi), "").is(409, "invalid_state")
		me.post(confirmPath(pi), "").is(200)
		me.keyed("k", refundPath(pi), "").is(201)
		canceled := me.created("pm_card_visa")
		me.post(cancelPath(canceled), "").is(200)
		me.keyed("l", refundPath(canceled), "").is(409, "invalid_state")
		require.Equal(t, "true", me.keyed("l", refundPath(canceled), "").is(409).header.Get("Idempotent-Replayed"))
	})

	t.Run("NeedsItsScope", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.me().paid("1000", "pm_card_visa")
		r := b.me().post(refundPath(pi), `{"amount":1}`).is(201).id()
		weak := b.me().with("X-Test-Scopes", "payment_intents:read,payment_intents:write")
		weak.post(refundPath(pi), "").is(403, "insufficient_scope")
		weak.get("/v1/refunds/"+r).is(403, "insufficient_scope")
		weak.get(refundPath(pi)).is(403, "insufficient_scope")
		reader := b.me().with("X-Test-Scopes", "payment_intents:read")
		reader.get(intents + "/" + pi).is(200)
		for _, path := range []string{intents, confirmPath(pi), cancelPath(pi)} {
			reader.post(path, "").is(403, "insufficient_scope")
		}
		b.as(b.b).get("/v1/refunds/"+r).is(404, "not_found")
		b.me().live().get("/v1/refunds/"+r).is(404, "not_found")
		b.me().get("/v1/refunds/re_x").is(404, "not_found")
	})

	t.Run("TwoAtOnceNeverExceed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range rounds(20) {
			pi := b.me().paid("100", "pm_card_visa")
			answers := b.inParallel(2, func(int) (answer, error) {
				return b.me().key(uuid.NewString()).do(t.Context(), http.MethodPost, refundPath(pi), []byte(`{"amount":60}`))
			})
			require.Equal(t, map[int]int{201: 1, 422: 1}, statuses(answers))
			require.EqualValues(t, 60, b.me().intent(pi).num("amount_refunded"))
		}
	})

	t.Run("TenAtOnceAllFit", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		pi := b.me().paid("100", "pm_card_visa")
		answers := b.inParallel(10, func(int) (answer, error) {
			return b.me().key(uuid.NewString()).do(t.Context(), http.MethodPost, refundPath(pi), []byte(`{"amount":10}`))
		})
		require.Equal(t, map[int]int{201: 10}, statuses(answers))
		b.me().post(refundPath(pi), `{"amount":10}`).is(422, "refund_exceeds_remaining")
	})

	t.Run("TwentyOfManySizes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range 3 {
			pi := b.me().paid("10000", "pm_card_visa")
			b.inParallel(20, func(i int) (answer, error) {
				return b.me().key(uuid.NewString()).do(t.Context(), http.MethodPost, refundPath(pi), fmt.Appendf(nil, `{"amount":%d}`, 600+i*270))
			})
			refunded := b.count(`SELECT sum(amount) FROM apipay.refunds WHERE status <> 'failed' AND payment_intent_id = $1`, b.uuid("pi", pi))
			require.LessOrEqual(t, refunded, 10000)
			require.EqualValues(t, refunded, b.me().intent(pi).num("amount_refunded"))
			require.Equal(t, refunded, b.count(`SELECT sum(amount) FROM apipay.sandbox_charges WHERE kind = 'refund' AND status = 'succeeded'
				AND charge_id = (SELECT latest_attempt FROM apipay.payment_intents WHERE id = $1)`, b.uuid("pi", pi)))
		}
	})

	t.Run("PendingCountsAndFailedGivesBack", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("100", "pm_refund_pending_then_fails")
		a := me.keyed("k", refundPath(pi), `{"amount":60}`).is(202)
		require.Equal(t, "pending", a.str("status"))
		require.Equal(t, "/v1/refunds/"+a.id(), a.header.Get("Location"))
		require.EqualValues(t, 60, me.intent(pi).num("amount_refunded"))
		require.Equal(t, []string{"refund.created"}, b.told(a.id()))
		// C6: the same key is the same refund.
		again := me.keyed("k", refundPath(pi), `{"amount":60}`).is(202)
		require.Equal(t, a.id(), again.id())
		me.post(refundPath(pi), `{"amount":60}`).is(422, "refund_exceeds_remaining")
		b.reconciling(b.service)
		b.until(func() bool { return me.get("/v1/refunds/"+a.id()).str("status") == "failed" }, "the refund stays pending")
		require.NotEmpty(t, me.get("/v1/refunds/"+a.id()).str("failure_reason"))
		require.Zero(t, me.intent(pi).num("amount_refunded"))
		require.Equal(t, []string{"refund.created", "refund.failed"}, b.told(a.id()))
		final := me.keyed("k", refundPath(pi), `{"amount":60}`).is(201)
		require.Equal(t, "failed", final.str("status"))
		require.Equal(t, "true", final.header.Get("Idempotent-Replayed"))
		require.EqualValues(t, 100, me.post(refundPath(pi), `{"amount":100}`).is(202).num("amount"))
		b.contract()
	})

	t.Run("NotExecutedFreesTheKeyAndTheRest", func(t *testing.T) {
		t.Parallel()
		var gw *unreachable
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = &unreachable{Gateway: inner}
			return gw
		}))
		me := b.me()
		pi := me.paid("100", "pm_card_visa")
		gw.down.Store(true)
		me.keyed("k", refundPath(pi), "").is(503, "gateway_unavailable")
		list := me.get(refundPath(pi)).is(200).body()["data"].([]any)
		require.Len(t, list, 1)
		failed := list[0].(map[string]any)
		require.Equal(t, "failed", failed["status"])
		require.Equal(t, "not_executed", failed["failure_reason"])
		require.Empty(t, b.told(failed["id"].(string)))
		gw.down.Store(false)
		ok := me.keyed("k", refundPath(pi), "").is(201)
		require.EqualValues(t, 100, ok.num("amount"))
		require.NotEqual(t, failed["id"], ok.id())
		b.contract()
	})

	t.Run("DeclinedAtOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("100", "pm_card_visa")
		// The gateway has given it back already, on somebody else's word.
		b.exec(`INSERT INTO apipay.sandbox_charges (attempt_id, tenant_id, livemode, kind, status, amount, currency, payment_method, charge_id)
			SELECT gen_random_uuid(), tenant_id, livemode, 'refund', 'succeeded', amount, currency, payment_method, attempt_id FROM apipay.sandbox_charges`)
		a := me.keyed("k", refundPath(pi), "").is(201)
		require.Equal(t, "failed", a.str("status"))
		require.Equal(t, "refund_exceeds_charge", a.str("failure_reason"))
		require.EqualValues(t, 2, a.num("version"))
		require.Equal(t, a.raw, me.keyed("k", refundPath(pi), "").is(201).raw)
		require.Equal(t, []string{"refund.created", "refund.failed"}, b.told(a.id()))
		require.Zero(t, me.intent(pi).num("amount_refunded"))
		b.contract()
	})

	t.Run("ALostAnswerIsFoundOut", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("100", "pm_card_visa")
		_, server := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return mute{inner} }))
		a := me.at(server).keyed("k", refundPath(pi), "").is(202)
		b.reconciling(b.service)
		b.until(func() bool { return me.get("/v1/refunds/"+a.id()).str("status") == "succeeded" }, "the refund stays pending")
		require.Equal(t, a.id(), me.keyed("k", refundPath(pi), "").is(201).id())
		require.Equal(t, []string{"refund.created", "refund.succeeded"}, b.told(a.id()))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE kind = 'refund'`))
	})

	t.Run("ALostCallIsClosed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.paid("100", "pm_card_visa")
		_, server := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return deaf{inner} }))
		a := me.at(server).keyed("k", refundPath(pi), "").is(202)
		b.travel(90*time.Second + 61*time.Second)
		b.reconciling(b.service)
		b.until(func() bool { return me.get("/v1/refunds/"+a.id()).str("status") == "failed" }, "the refund stays pending")
		require.Equal(t, "not_executed", me.get("/v1/refunds/"+a.id()).str("failure_reason"))
		require.Equal(t, []string{"refund.created", "refund.failed"}, b.told(a.id()))
		require.NotEqual(t, a.id(), me.keyed("k", refundPath(pi), "").is(201).id())
		b.contract()
	})
}
