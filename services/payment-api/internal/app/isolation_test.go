package app_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/id"
)

// intent creates a payment intent whose description is the marker.
func (m merchant) intent(t testing.TB, marker string) answer {
	t.Helper()
	a := m.call(t, http.MethodPost, "/v1/payment-intents",
		body{"amount": 1000, "currency": "EUR", "description": marker, "payment_method": "pm_card_visa"}, "Idempotency-Key", uuid.NewString())
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return a
}

// A14, A16, B36: what belongs to another tenant or mode is as unknown as a random id, everywhere.
func TestIsolation_ForeignIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, "APIPAY_DEV=1", "APIPAY_GATEWAY_LIVE=sandbox")
	tenant := b.tenant(t)
	owner := merchant{b.url, b.key(t, tenant, false)}
	intent := owner.intent(t, "mine")
	intentPath := "/v1/payment-intents/" + intent.str("id")
	require.Equal(t, http.StatusOK, owner.call(t, http.MethodPost, intentPath+"/confirm", nil, "Idempotency-Key", "c").status)
	refund := owner.call(t, http.MethodPost, intentPath+"/refunds", body{"amount": 10}, "Idempotency-Key", "r")
	require.Equal(t, http.StatusCreated, refund.status, string(refund.body))
	endpoint := owner.endpoint(t).header.Get("Location")
	event := owner.call(t, http.MethodGet, "/v1/events?limit=1", nil).data()[0]["id"].(string)
	random := uuid.Must(uuid.NewV7())

	for who, m := range map[string]merchant{
		"another tenant": b.merchant(t),
		"the other mode": {b.url, b.key(t, tenant, true)},
	} {
		for _, c := range []struct {
			method, path, unknown string
			in                    any
		}{
			{"GET", intentPath, "/v1/payment-intents/" + id.Format(id.PaymentIntent, random), nil},
			{"POST", intentPath + "/confirm", "/v1/payment-intents/" + id.Format(id.PaymentIntent, random) + "/confirm", nil},
			{"POST", intentPath + "/cancel", "/v1/payment-intents/" + id.Format(id.PaymentIntent, random) + "/cancel", nil},
			{"POST", intentPath + "/refunds", "/v1/payment-intents/" + id.Format(id.PaymentIntent, random) + "/refunds", body{"amount": 1}},
			{"GET", intentPath + "/refunds", "/v1/payment-intents/" + id.Format(id.PaymentIntent, random) + "/refunds", nil},
			{"GET", "/v1/refunds/" + refund.str("id"), "/v1/refunds/" + id.Format(id.Refund, random), nil},
			{"GET", endpoint, "/v1/webhook-endpoints/" + id.Format(id.Endpoint, random), nil},
			{"PATCH", endpoint, "/v1/webhook-endpoints/" + id.Format(id.Endpoint, random), body{"status": "disabled"}},
			{"DELETE", endpoint, "/v1/webhook-endpoints/" + id.Format(id.Endpoint, random), nil},
			{"POST", endpoint + "/rotate-secret", "/v1/webhook-endpoints/" + id.Format(id.Endpoint, random) + "/rotate-secret", nil},
			{"GET", "/v1/events/" + event, "/v1/events/" + id.Format(id.Event, random), nil},
		} {
			foreign := m.call(t, c.method, c.path, c.in, "Idempotency-Key", uuid.NewString(), "X-Request-Id", "same")
			unknown := m.call(t, c.method, c.unknown, c.in, "Idempotency-Key", uuid.NewString(), "X-Request-Id", "same")
			refused(t, foreign, http.StatusNotFound, "not_found")
			require.Equal(t, strings.ReplaceAll(string(unknown.body), c.unknown, c.path), string(foreign.body), "%s: %s %s", who, c.method, c.path)
		}
		for _, list := range []string{"/v1/payment-intents", "/v1/payment-intents?status=succeeded", "/v1/webhook-endpoints", "/v1/events"} {
			require.Empty(t, m.call(t, http.MethodGet, list, nil).data(), "%s: %s", who, list)
		}
		// The owner's key and its stored answer are nobody else's.
		a := m.call(t, http.MethodPost, "/v1/payment-intents", body{"amount": 1, "currency": "EUR"}, "Idempotency-Key", "c")
		require.Equal(t, http.StatusCreated, a.status, "%s: %s", who, a.body)
		require.Equal(t, http.StatusCreated, m.endpoint(t).status, "the same URL is free for everybody")
	}
	require.Equal(t, "succeeded", owner.call(t, http.MethodGet, intentPath, nil).json["status"])

	// A16: a key without a scope of refunds
	restricted := merchant{b.url, b.key(t, tenant, false, apikey.PaymentIntentsRead, apikey.PaymentIntentsWrite)}
	refused(t, restricted.call(t, http.MethodPost, intentPath+"/refunds", body{}, "Idempotency-Key", "x"), http.StatusForbidden, "insufficient_scope")
	refused(t, restricted.call(t, http.MethodGet, "/v1/refunds/"+refund.str("id"), nil), http.StatusForbidden, "insufficient_scope")
}

// B36: unknown and foreign take the same time. Paired, so that load from beside falls on both.
func TestIsolation_ForeignTakesAsLongAsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	foreign := "/v1/payment-intents/" + b.merchant(t).intent(t, "theirs").str("id")
	unknown := "/v1/payment-intents/" + id.Format(id.PaymentIntent, uuid.Must(uuid.NewV7()))
	m := b.merchant(t)
	m.call(t, http.MethodGet, unknown, nil)
	slower := 0
	const pairs = 200
	for i := range pairs {
		paths := []string{foreign, unknown}
		if i%2 == 1 {
			paths[0], paths[1] = paths[1], paths[0]
		}
		var took [2]time.Duration
		for j, path := range paths {
			began := time.Now()
			m.call(t, http.MethodGet, path, nil)
			took[j] = time.Since(began)
		}
		if (took[0] > took[1]) == (i%2 == 0) {
			slower++
		}
	}
	// 100 +- 7 by chance; 6 standard deviations of tolerance.
	require.InDelta(t, pairs/2, slower, 45)
}

// A15, B28, B31: two connections for two tenants, with clients that hang up in mid-request: no connection ever carries one
// tenant's setting into another's work.
func TestIsolation_SharedConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := start(t, b, "APIPAY_DATABASE_URL="+withParam(t, b.db.App, "pool_max_conns", "2"))
	var merchants [2]merchant
	var markers [2]string
	var own [2][]string
	for i := range merchants {
		merchants[i] = merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
		markers[i] = "marker-" + uuid.NewString()
		for range 5 {
			own[i] = append(own[i], merchants[i].intent(t, markers[i]).str("id"))
		}
	}
	var wg sync.WaitGroup
	var foreign, answered, hungUp atomic.Int64
	for worker := range 50 {
		wg.Go(func() {
			for i := range 20 {
				mine := (worker + i) % 2
				m, theirs := merchants[mine], markers[1-mine]
				var a answer
				var err error
				switch (worker + i/2) % 5 {
				case 0:
					a, err = m.try(t, http.MethodGet, "/v1/payment-intents?limit=100", nil)
				case 1:
					a, err = m.try(t, http.MethodGet, "/v1/events?limit=100", nil)
				case 2: // fails inside its transaction
					a, err = m.try(t, http.MethodPost, "/v1/payment-intents/"+own[1-mine][0]+"/cancel", nil, "Idempotency-Key", uuid.NewString())
				case 3:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
					request, _ := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/v1/payment-intents?limit=100", nil)
					request.Header.Set("Authorization", "Bearer "+m.key)
					if response, failed := client.Do(request); failed == nil {
						_ = response.Body.Close()
					} else {
						hungUp.Add(1)
					}
					cancel()
					continue
				case 4:
					a, err = m.try(t, http.MethodPost, "/v1/payment-intents",
						body{"amount": 1, "currency": "EUR", "description": markers[mine]}, "Idempotency-Key", uuid.NewString())
				}
				if err != nil || a.status >= 500 {
					t.Errorf("worker %d: %v %d %s", worker, err, a.status, a.body)
					continue
				}
				answered.Add(1)
				if strings.Contains(string(a.body), theirs) {
					foreign.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, foreign.Load())
	require.Greater(t, answered.Load(), int64(700))
	require.NotZero(t, hungUp.Load())
	for i, m := range merchants {
		a := m.call(t, http.MethodGet, "/v1/payment-intents?limit=100", nil)
		require.GreaterOrEqual(t, len(a.data()), 5)
		for _, one := range a.data() {
			require.Equal(t, markers[i], one["description"])
		}
	}
	require.Equal(t, http.StatusOK, p.ready())
}

// B31: a tenant-less statement after a tenant's on the only connection there is.
func TestIsolation_OneConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := start(t, b, "APIPAY_DATABASE_URL="+withParam(t, b.db.App, "pool_max_conns", "1"))
	for i := range 5 {
		m := merchant{"http://" + p.http, b.key(t, b.tenant(t), i%2 == 0)}
		require.Equal(t, http.StatusCreated, m.endpoint(t).status)
		require.Len(t, m.call(t, http.MethodGet, endpointsPath, nil).data(), 1)
		require.Equal(t, http.StatusOK, p.ready())
		refused(t, merchant{m.url, apikey.New(false).Reveal()}.call(t, http.MethodGet, endpointsPath, nil), http.StatusUnauthorized, "authentication_failed")
	}
	require.NotContains(t, p.logs.String(), "22P02")
	pool := b.db.Pool(t, b.db.App)
	for _, table := range []string{"tenants", "api_keys", "payment_intents", "webhook_endpoints", "outbox_events", "idempotency_keys"} {
		var rows int
		require.NoError(t, pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM apipay.%s`, table)).Scan(&rows))
		require.Zero(t, rows, "%s without a tenant", table)
	}
}
