package app_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// B95, in small: 500 clients vanish in mid-request, others wait for a slow gateway, links to the database break. Reads of
// others stay quick, nobody meets a connection that is left in a broken transaction, and no transaction stands open.
func TestVanishingClients(t *testing.T) {
	t.Parallel()
	b := setup(t)
	way, dsn := throughProxy(t, b.db.App)
	p := start(t, b, "APIPAY_DATABASE_URL="+withParam(t, dsn, "pool_max_conns", "8"))
	m := merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
	path := "/v1/payment-intents/" + m.intent(t, "mine").str("id")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var idle atomic.Int64 // the greatest age of a transaction that stands open, in ms
	super := b.db.Pool(t, b.db.Super)
	all.Go(func() {
		for ctx.Err() == nil {
			var age int64
			err := super.QueryRow(t.Context(), `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - state_change) * 1000), 0)::bigint
				FROM pg_stat_activity WHERE datname = current_database() AND usename = 'apipay_app' AND state LIKE 'idle in transaction%'`).Scan(&age)
			if err != nil {
				t.Error(err)
				return
			}
			idle.Store(max(idle.Load(), age))
			time.Sleep(20 * time.Millisecond)
		}
	})
	// Gateways that take 6 s hold no connection meanwhile.
	for range 16 {
		all.Go(func() {
			a, err := m.try(t, http.MethodPost, "/v1/payment-intents",
				body{"amount": 1, "currency": "EUR", "payment_method": "pm_card_slow", "confirm": true}, "Idempotency-Key", uuid.NewString())
			if err != nil || a.status != http.StatusCreated {
				t.Errorf("%v %d %s", err, a.status, a.body)
			}
		})
	}
	require.Eventually(t, func() bool {
		return query[int](t, b, `SELECT count(*) FROM apipay.sandbox_charges`) == 16
	}, 5*time.Second, 20*time.Millisecond)
	var vanished atomic.Int64
	gone := make(chan struct{})
	all.Go(func() {
		defer close(gone)
		var clients sync.WaitGroup
		slots := make(chan struct{}, 50)
		for i := range 500 {
			slots <- struct{}{}
			clients.Go(func() {
				defer func() { <-slots }()
				if vanish(p.http, m.key, i) {
					vanished.Add(1)
				}
			})
			if i%100 == 99 {
				way.cut(false)
			}
		}
		clients.Wait()
	})
	var took []time.Duration
	for waiting := true; waiting || len(took) < 300; {
		began := time.Now()
		a := m.call(t, http.MethodGet, path, nil)
		// A link that breaks under a read is answered 503, and never more than that.
		if a.status != http.StatusOK {
			refused(t, a, http.StatusServiceUnavailable, "service_unavailable")
		}
		took = append(took, time.Since(began))
		select {
		case <-gone:
			waiting = false
		default:
		}
	}
	// Each link has been tried once now, and the broken ones are gone.
	for range 50 {
		require.Equal(t, http.StatusOK, m.call(t, http.MethodGet, path, nil).status)
	}
	stop()
	all.Wait()
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d vanished, %d reads, p99 %v, oldest open transaction %d ms", vanished.Load(), len(took), p99, idle.Load())
	require.EqualValues(t, 500, vanished.Load())
	require.Less(t, p99, time.Second)
	require.Less(t, idle.Load(), int64(1000))
	require.NotContains(t, p.logs.String(), "25P02")
	require.NotContains(t, p.logs.String(), "transaction is aborted")
}

// vanish sends a request, the last of it missing for every third client, and is gone.
func vanish(address, key string, i int) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	text := "POST /v1/payment-intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nIdempotency-Key: " + uuid.NewString() +
		"\r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n" + `{"amount":1000,"currency":"EUR"} `
	if i%3 == 0 {
		text = strings.TrimSuffix(text, `"EUR"} `)
	}
	_, err = conn.Write([]byte(text))
	time.Sleep(time.Duration(i%5) * time.Millisecond) // vanishing at different stages is what is tried
	_ = conn.(*net.TCPConn).SetLinger(0)              // a reset, as of a machine that is gone
	return err == nil
}
