package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/services/payment-api/internal/payments"
)

func TestIdempotency(t *testing.T) {
	t.Parallel()
	const body = `{"amount":1000,"currency":"EUR","metadata":{"a":"1","b":"2"}}`

	t.Run("Replays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		first := me.keyed("k", intents, body).is(201)
		for _, same := range []string{body, `{"currency":"EUR", "amount":1000,"metadata":{"b":"2","a":"1"}}`, ` {"metadata":{"b":"\u0032","a":"1"},"currency":"EUR",
			"amount":1000} `} {
			again := me.keyed("k", intents, same).is(201)
			require.Equal(t, first.raw, again.raw)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
			require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
		}
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		require.Equal(t, []string{"payment_intent.created"}, b.told(first.id()))
		// The stored answer stands even when the object has moved on.
		me.post(cancelPath(first.id()), "").is(200)
		require.Equal(t, first.raw, me.keyed("k", intents, body).is(201).raw)
	})

	t.Run("RefusesAnotherRequest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.keyed("k", intents, body).is(201).id()
		a := me.keyed("k", intents, `{"amount":2000,"currency":"EUR"}`).is(422, "idempotency_key_reused")
		require.Contains(t, a.raw, `"header":"Idempotency-Key"`)
		for _, path := range []func(string) string{confirmPath, cancelPath, refundPath} {
			me.keyed("k", path(pi), "").is(422, "idempotency_key_reused")
		}
		require.Equal(t, "requires_payment_method", me.intent(pi).str("status"))
		one, other := me.created("pm_card_visa"), me.created("pm_card_visa")
		me.keyed("c", confirmPath(one), "").is(200)
		me.keyed("c", confirmPath(other), "").is(422, "idempotency_key_reused")
		me.keyed("c", cancelPath(one), "").is(422, "idempotency_key_reused")
		require.Equal(t, "requires_confirmation", me.intent(other).str("status"))
	})

	t.Run("BelongsToTenantAndMode", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		mine := b.me().keyed("order-1", intents, body).is(201)
		others := b.as(b.b).keyed("order-1", intents, body).is(201)
		live := b.me().live().keyed("order-1", intents, body).is(201)
		require.NotEqual(t, mine.id(), others.id())
		require.NotEqual(t, mine.id(), live.id())
		b.as(b.b).keyed("order-1", intents, `{"amount":1,"currency":"EUR"}`).is(422, "idempotency_key_reused")
		require.Equal(t, others.raw, b.as(b.b).keyed("order-1", intents, body).is(201).raw)
	})

	t.Run("WhatIsRefusedBeforeTheClaimKeepsTheKeyFree", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		me.keyed("k", intents, `{"amount":`).is(400)
		me.keyed("k", intents, `{"amount":0,"currency":"EUR"}`).is(422)
		me.key("k").with("Content-Type", "text/xml").send(http.MethodPost, intents, body).is(415)
		me.key("k").with("X-Test-Scopes", "events:read").send(http.MethodPost, intents, body).is(403)
		me.keyed("k", confirmPath("pi_01kdqx7h2ge9wbe8zrb7b8s3mt"), "").is(404)
		me.keyed("k", intents, body).is(201)
	})

	t.Run("FiftyAtOnce", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		answers := b.inParallel(50, func(int) (answer, error) {
			return b.me().key("k-1").do(t.Context(), http.MethodPost, intents, []byte(body))
		})
		pi := b.me().keyed("k-1", intents, body).is(201).id()
		for _, a := range answers {
			if a.status != 201 {
				a.is(409, "idempotency_in_progress")
				continue
			}
			require.Equal(t, pi, a.id())
		}
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
		require.Equal(t, []string{"payment_intent.created"}, b.told(pi))
	})

	t.Run("ManyKeysAtOnceOnOneIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		// Few connections and many requests that hold locks in the same places: nothing may deadlock.
		_, server := b.serve(appPool(t, b.db, 2))
		pi := b.me().created("pm_card_visa")
		b.inParallel(60, func(i int) (answer, error) {
			path := []string{confirmPath(pi), cancelPath(pi), refundPath(pi)}[i%3]
			return b.me().at(server).key(fmt.Sprintf("k-%d", i%6)).do(t.Context(), http.MethodPost, path, nil)
		})
		require.LessOrEqual(t, b.charges(pi), 1)
	})

	t.Run("LivesSevenDays", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		first := me.keyed("k", intents, body).is(201)
		paid := me.created("pm_card_visa")
		me.keyed("c", confirmPath(paid), "").is(200)
		b.travel(7*24*time.Hour - time.Minute)
		require.Equal(t, first.raw, me.keyed("k", intents, body).is(201).raw)
		b.travel(2 * time.Minute)
		second := me.keyed("k", intents, body).is(201)
		require.NotEqual(t, first.id(), second.id())
		require.Empty(t, second.header.Get("Idempotent-Replayed"))
		me.keyed("c", confirmPath(paid), "").is(409, "invalid_state")
		require.Equal(t, 1, b.charges(paid))
		// Another request may use the key then, too.
		b.travel(8 * 24 * time.Hour)
		me.keyed("k", intents, `{"amount":5,"currency":"EUR"}`).is(201)
	})

	t.Run("TheReaperRacesNobody", func(t *testing.T) {
		t.Parallel()
		const life = 300 * time.Millisecond
		b := setup(t, withConfig(func(c *payments.Config) { c.KeyTTL = life }))
		ctx, cancel := context.WithCancel(context.Background())
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			loop := ops.NewHealth().Loop("reaper", time.Minute)
			for ctx.Err() == nil {
				if err := b.service.ReapOnce(ctx, loop); err != nil && ctx.Err() == nil {
					t.Errorf("reaping: %v", err)
				}
			}
		}()
		began := time.Now()
		var lives atomic.Int32 // seen by the first client, which repeats as often as it takes
		b.inParallel(10, func(i int) (a answer, err error) {
			last := ""
			for lives.Load() < 6 && time.Since(began) < patience && err == nil {
				a, err = b.me().key("k").do(t.Context(), http.MethodPost, intents, []byte(body))
				if a.status != 201 && a.status != 409 {
					return a, fmt.Errorf("status %d: %s", a.status, a.raw)
				}
				if i == 0 && a.status == 201 && a.id() != last {
					last = a.id()
					lives.Add(1)
				}
			}
			return a, err
		})
		cancel()
		<-swept
		longest := int(time.Since(began)/life) + 1
		// One intent per life of the key, at most.
		made := b.count(`SELECT count(*) FROM apipay.payment_intents`)
		require.Greater(t, made, 3)
		require.LessOrEqual(t, made, longest)
	})

	t.Run("AnOpenOutcomeOutlivesTheKey", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		const body = `{"amount":1000,"currency":"EUR","confirm":true,"payment_method":"pm_card_never_resolves"}`
		first := me.keyed("k", intents, body).is(202)
		b.travel(8 * 24 * time.Hour)
		require.NoError(t, b.service.ReapOnce(t.Context(), ops.NewHealth().Loop("reaper", time.Minute)))
		require.Equal(t, first.id(), me.keyed("k", intents, body).is(202).id())
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
	})
}
