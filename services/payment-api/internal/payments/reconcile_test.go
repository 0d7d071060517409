package payments_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/payments"
)

const (
	lease      = 90 * time.Second
	visibility = 60 * time.Second
)

func TestUnknownOutcome(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		method, becomes, event string
		status                 int
		charges                int
	}{
		{"pm_card_timeout_then_succeeds", "succeeded", "payment_intent.succeeded", 200, 1},
		{"pm_card_timeout_then_fails", "requires_payment_method", "payment_intent.payment_failed", 402, 0},
	} {
		t.Run(c.method, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withQuickGateway())
			me := b.me()
			pi := me.created(c.method)
			a := me.keyed("k", confirmPath(pi), "").is(202)
			require.Equal(t, "processing", a.str("status"))
			require.Empty(t, a.header.Get("Idempotent-Replayed"))
			require.Equal(t, a.raw, me.keyed("k", confirmPath(pi), "").is(202).raw)
			me.keyed("l", confirmPath(pi), "").is(409, "invalid_state")
			me.post(cancelPath(pi), "").is(409, "invalid_state")
			require.Equal(t, []string{"payment_intent.created", "payment_intent.processing"}, b.told(pi))
			b.reconciling(b.service)
			me.becomes(pi, c.becomes)
			final := me.keyed("k", confirmPath(pi), "").is(c.status)
			require.Equal(t, "true", final.header.Get("Idempotent-Replayed"))
			require.Equal(t, final.raw, me.keyed("k", confirmPath(pi), "").is(c.status).raw)
			if c.status == 402 {
				// The problem is that of the first request.
				require.Equal(t, a.header.Get("X-Request-Id"), final.str("request_id"))
				require.Equal(t, confirmPath(pi), final.str("instance"))
			}
			require.Equal(t, []string{"payment_intent.created", "payment_intent.processing", c.event}, b.told(pi))
			require.Equal(t, []string{"payment_attempt.started", "payment_attempt.unknown", "payment_attempt." + map[int]string{1: "succeeded", 0: "declined"}[c.charges]},
				b.told(a.str("latest_attempt"), "apipay.payment-events.v1"))
			require.Equal(t, c.charges, b.charges(pi))
			b.contract()
		})
	}

	t.Run("CreateWithConfirmAnswersItsOwnWay", func(t *testing.T) {
		t.Parallel()
		b := setup(t, withQuickGateway())
		const body = `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"pm_card_timeout_then_succeeds"}`
		a := b.me().keyed("k", intents, body).is(202)
		require.Equal(t, intents+"/"+a.id(), a.header.Get("Location"))
		b.reconciling(b.service)
		b.me().becomes(a.id(), "succeeded")
		final := b.me().keyed("k", intents, body).is(201)
		require.Equal(t, a.header.Get("Location"), final.header.Get("Location"))
		require.Equal(t, "succeeded", final.str("status"))
	})

	t.Run("APanicOfTheConnectorIsUnknown", func(t *testing.T) {
		t.Parallel()
		b := setup(t, withGateway(func(inner gateway.Gateway) gateway.Gateway { return panicking{inner} }))
		pi := b.me().created("pm_card_visa")
		b.me().post(confirmPath(pi), "").is(202)
		b.reconciling(b.service)
		b.me().becomes(pi, "succeeded")
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("NotFoundProvesNothingBeforeTheDelay", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		_, server := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return deaf{inner} }))
		pi := me.created("pm_card_visa")
		me.at(server).keyed("k", confirmPath(pi), "").is(202)
		checks := func() int { return b.count(`SELECT max(check_count) FROM apipay.payment_attempts`) }
		b.reconciling(b.service)
		for n := 1; n <= 3; n++ {
			b.until(func() bool { return checks() == n }, "check %d does not come", n)
			require.Equal(t, "processing", me.intent(pi).str("status"))
			// The lease has 90 s and the gateway 60 s after it: 3 x 45 s is not enough.
			b.travel(45 * time.Second)
		}
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.sandbox_charges`))
		b.travel(lease + visibility - 3*45*time.Second)
		p := me.becomes(pi, "requires_confirmation")
		require.Equal(t, "not_executed", p.body()["last_payment_error"].(map[string]any)["code"])
		require.Equal(t, "pm_card_visa", p.str("payment_method"))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.processing", "payment_intent.payment_failed"}, b.told(pi))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE status = 'closed'`))
		// The key is free: it pays now, with a new attempt.
		me.keyed("k", confirmPath(pi), "").is(200)
		require.Equal(t, 1, b.charges(pi))
		b.contract()
	})

	t.Run("ACreateKeepsItsIntentAfterNotExecuted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const body = `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"pm_card_visa"}`
		_, server := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return deaf{inner} }))
		pi := b.me().at(server).keyed("k", intents, body).is(202).id()
		b.travel(lease + visibility + time.Second)
		b.reconciling(b.service)
		b.me().becomes(pi, "requires_confirmation")
		require.Equal(t, pi, b.me().keyed("k", intents, body).is(201).id())
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("OneThatNeverResolvesIsDecidedByHand", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.reconciling(b.service)
		admin := b.db.Pool(t, b.db.Admin)
		for outcome, want := range map[string]struct {
			status string
			answer int
		}{"succeeded": {"succeeded", 200}, "declined": {"requires_payment_method", 402}, "not_executed": {"requires_confirmation", 0}} {
			pi := b.me().created("pm_card_never_resolves")
			a := b.me().keyed(outcome, confirmPath(pi), "").is(202)
			b.travel(lease + visibility + time.Second)
			b.until(func() bool {
				return b.count(`SELECT check_count FROM apipay.payment_attempts WHERE id = $1`, b.uuid("pat", a.str("latest_attempt"))) > 0
			}, "it is not checked")
			require.Equal(t, "processing", b.me().intent(pi).str("status"))
			tx, err := admin.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(t.Context(), `SELECT set_config('app.admin_scope', '*', true)`)
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `UPDATE apipay.payment_attempts SET resolution = $2, resolution_reason = 'called the bank',
				resolved_by = 'ann', resolved_at = now(), next_check_at = now() WHERE id = $1`, b.uuid("pat", a.str("latest_attempt")), outcome)
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			b.me().becomes(pi, want.status)
			if want.answer > 0 {
				b.me().keyed(outcome, confirmPath(pi), "").is(want.answer)
			}
		}
		b.contract()
	})
}

func TestCrash(t *testing.T) {
	t.Parallel()
	const create = `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"pm_card_visa"}`

	t.Run("AfterTheGatewayAccepted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		_, dead := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return dying{inner, true} }))
		pi := me.created("pm_card_visa")
		_, err := me.at(dead).key("k").do(t.Context(), http.MethodPost, confirmPath(pi), nil)
		require.Error(t, err)
		// Before the lease ends nobody takes over.
		b.travel(lease - 10*time.Second)
		require.NoError(t, b.service.ReconcileOnce(t.Context()))
		me.keyed("k", confirmPath(pi), "").is(409, "idempotency_in_progress")
		require.Equal(t, "processing", me.intent(pi).str("status"))
		b.travel(11 * time.Second)
		// The retry itself finds the truth; no loop runs here.
		a := me.keyed("k", confirmPath(pi), "").is(200)
		require.Equal(t, "succeeded", a.str("status"))
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
	})

	t.Run("BeforeTheCall", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		_, dead := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return dying{inner, false} }))
		_, err := me.at(dead).key("k").do(t.Context(), http.MethodPost, intents, []byte(create))
		require.Error(t, err)
		running := me.keyed("k", intents, create).is(409, "idempotency_in_progress").str("payment_intent")
		b.travel(lease + time.Second)
		pi := me.keyed("k", intents, create).is(202).id()
		require.Equal(t, running, pi)
		b.travel(visibility + time.Second)
		require.NoError(t, b.service.ReconcileOnce(t.Context()))
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		require.Equal(t, pi, me.keyed("k", intents, create).is(201).id())
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, []string{
			"payment_intent.created", "payment_intent.processing", "payment_intent.payment_failed", "payment_intent.succeeded",
		}, b.told(pi))
		b.contract()
	})

	t.Run("OfARefund", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		for _, after := range []bool{true, false} {
			_, dead := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway { return dying{inner, after} }))
			pi := me.paid("1000", "pm_card_visa")
			_, err := me.at(dead).key("k"+pi).do(t.Context(), http.MethodPost, refundPath(pi), nil)
			require.Error(t, err)
			b.travel(lease + visibility + time.Second)
			require.NoError(t, b.service.ReconcileOnce(t.Context()))
			a := me.keyed("k"+pi, refundPath(pi), "").is(201)
			require.Equal(t, "succeeded", a.str("status"))
			require.EqualValues(t, 1000, me.intent(pi).num("amount_refunded"))
			require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges c JOIN apipay.payment_attempts a ON a.id = c.attempt_id
				WHERE c.kind = 'refund' AND c.status = 'succeeded' AND a.payment_intent_id = $1`, b.uuid("pi", pi)))
		}
		b.contract()
	})

	t.Run("APauseEndsInTheGatewaysTruth", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		gw := late{arrived: make(chan struct{}, 1), letGo: make(chan struct{})}
		_, paused := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw.Gateway = inner
			return gw
		}))
		pi := me.created("pm_card_visa")
		done := make(chan answer, 1)
		go func() {
			a, _ := me.at(paused).key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
			done <- a
		}()
		<-gw.arrived
		b.travel(lease + visibility + time.Second)
		require.NoError(t, b.service.ReconcileOnce(t.Context()))
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		// The call arrives after all, and the gateway refuses the closed id.
		close(gw.letGo)
		(<-done).is(503, "gateway_unavailable")
		require.Zero(t, b.charges(pi))
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		me.keyed("k", confirmPath(pi), "").is(200)
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("AReleasedKeyThatStandsForAnotherRequest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		gw := late{arrived: make(chan struct{}, 1), letGo: make(chan struct{})}
		_, paused := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw.Gateway = inner
			return gw
		}))
		pi := me.created("pm_card_declined")
		done := make(chan answer, 1)
		go func() {
			a, _ := me.at(paused).key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
			done <- a
		}()
		<-gw.arrived
		b.travel(lease + visibility + time.Second)
		require.NoError(t, b.service.ReconcileOnce(t.Context()))
		// The first attempt was not executed, so its key is free, for any body.
		me.keyed("k", confirmPath(pi), `{"payment_method":"pm_card_visa"}`).is(200)
		close(gw.letGo)
		(<-done).is(503, "gateway_unavailable")
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("ASlowRequestFindsItsAttemptSettled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		var gw *holding
		_, slow := b.serve(b.pool, withGateway(func(inner gateway.Gateway) gateway.Gateway {
			gw = newHolding(inner)
			return gw
		}))
		pi := me.created("pm_card_visa")
		done := make(chan answer, 1)
		go func() {
			a, _ := me.at(slow).key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
			done <- a
		}()
		<-gw.arrived
		b.travel(lease + time.Second)
		require.NoError(t, b.service.ReconcileOnce(t.Context()))
		settled := me.becomes(pi, "succeeded")
		close(gw.letGo)
		a := (<-done).is(200)
		require.Equal(t, settled.raw, a.raw)
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
	})

	t.Run("NoCallBeginsWhenTheLeaseIsNearlyOver", func(t *testing.T) {
		t.Parallel()
		b := setup(t, withConfig(func(c *payments.Config) { c.Lease, c.GatewayTimeout = 1200*time.Millisecond, time.Second }))
		me := b.me()
		pi := me.created("pm_card_visa")
		super := b.db.Pool(t, b.db.Super)
		tx, err := super.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), `SELECT 1 FROM apipay.payment_intents FOR UPDATE`)
		require.NoError(t, err)
		done := make(chan answer, 1)
		go func() {
			a, _ := me.key("k").do(context.Background(), http.MethodPost, confirmPath(pi), nil)
			done <- a
		}()
		b.until(func() bool {
			var waiting bool
			require.NoError(t, super.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND datname = current_database())`).Scan(&waiting))
			return waiting
		}, "nobody waits for the lock")
		// It waits longer than the difference of lease and timeout.
		_, err = tx.Exec(t.Context(), `SELECT pg_sleep(0.4)`)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		(<-done).is(503, "gateway_unavailable")
		require.Zero(t, b.count(`SELECT count(*) FROM apipay.sandbox_charges`))
		require.Equal(t, "requires_confirmation", me.intent(pi).str("status"))
		me.keyed("k", confirmPath(pi), "").is(200)
	})

	t.Run("AFailureAfterTheChargeKeepsTheKey", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		b.exec(`CREATE FUNCTION apipay.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
		b.exec(`CREATE TRIGGER fail BEFORE UPDATE ON apipay.payment_attempts FOR EACH ROW
			WHEN (NEW.status = 'succeeded') EXECUTE FUNCTION apipay.fail()`)
		a := me.keyed("k", intents, create).is(500, "internal_error")
		pi := a.str("payment_intent")
		require.NotContains(t, a.raw, "RAISE")
		me.keyed("k", intents, create).is(409, "idempotency_in_progress")
		b.exec(`DROP TRIGGER fail ON apipay.payment_attempts`)
		b.travel(lease + time.Second)
		require.Equal(t, pi, me.keyed("k", intents, create).is(201).id())
		require.Equal(t, 1, b.charges(pi))
	})

	t.Run("TwoReconcilersAskOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t, withQuickGateway())
		me := b.me()
		other, _ := b.serve(b.pool)
		pis := make([]string, 10)
		answers := b.inParallel(len(pis), func(i int) (answer, error) {
			return me.key(string(rune('a'+i))).do(t.Context(), http.MethodPost, intents,
				[]byte(`{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"pm_card_timeout_then_succeeds"}`))
		})
		for i, a := range answers {
			pis[i] = a.is(202).id()
		}
		b.reconciling(b.service)
		b.reconciling(other)
		for _, pi := range pis {
			me.becomes(pi, "succeeded")
			require.Equal(t, []string{"payment_intent.created", "payment_intent.processing", "payment_intent.succeeded"}, b.told(pi))
		}
	})
}
