package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resumeLimit is what every loop has from the return of what was away to its work.
const resumeLimit = 30 * time.Second

// TestOutage takes the broker away and then Postgres, under load, each for OUTAGE_SECONDS: no process dies or is called dead,
// payment-api takes payments without Kafka and is unready without Postgres, and work resumes within 30 s of the return with
// nothing parked, nothing charged twice and no attempt used up.
func TestOutage(t *testing.T) {
	length := seconds(t, "OUTAGE_SECONDS")
	h := start(t, "RELAYS=2", "DISPATCHERS=2", "PAYMENT_APIS=2")
	rx := listen(t)
	shops := h.shops(t, rx, 8)
	before := h.PIDs

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var bought atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, clients)
	for i := range clients {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				// Calls outlive the load's end: what was begun is insisted on.
				if err := shops[n%len(shops)].buy(t.Context()); err != nil {
					errs <- err
					return
				}
				bought.Add(1)
				time.Sleep(time.Second) // a merchant's pace
			}
		})
	}
	h.wait(t, func() bool { return bought.Load() > 20 }, "purchases")

	watch := h.watchProbes(t)
	begun := bought.Load()
	h.devstack(t, "stop", "broker")
	h.wait(t, func() bool {
		return watch.saw("outbox_relay", "degraded") && watch.saw("webhook_dispatcher", "degraded")
	}, "relay and dispatcher saying that they are degraded")
	time.Sleep(length) // the outage
	withoutKafka := bought.Load() - begun
	require.Positive(t, withoutKafka, "payments without Kafka")
	oldest := h.count(t, `SELECT coalesce(extract(epoch FROM now() - min(created_at))::int, 0) FROM apipay.outbox_events WHERE published_at IS NULL`)
	require.GreaterOrEqual(t, oldest, int(length.Seconds())-1)
	require.GreaterOrEqual(t, h.metric(t, "apipay_outbox_oldest_pending_seconds"), float64(oldest)/2, "the metric shows the lag")
	h.devstack(t, "start", "broker")
	kafkaResumed := h.resumed(t, anything)
	watch.stop()
	require.Empty(t, watch.notReady(), "probes while the broker was away: only Postgres makes a process unready")
	require.Empty(t, watch.notAlive())
	// What piled up is gone in less time than it took to pile up.
	caughtUp := time.Now()
	h.eventually(t, max(length, 30*time.Second), 0, `
		SELECT (SELECT count(*) FROM apipay.outbox_events WHERE published_at IS NULL AND created_at < now() - interval '10 seconds')
		     + (SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status <> 'DELIVERED' AND created_at < now() - interval '10 seconds')`)
	backlog := time.Since(caughtUp).Round(100 * time.Millisecond)

	watch = h.watchProbes(t)
	h.devstack(t, "stop", "postgres")
	h.wait(t, func() bool { return watch.unready("payment_api") }, "payment-api being unready without Postgres")
	time.Sleep(length) // the outage
	h.devstack(t, "start", "postgres")
	postgresResumed := h.resumed(t, anew)
	h.wait(t, func() bool { return len(watch.unreadyNow()) == 0 }, "everybody being ready again")
	watch.stop()
	require.Empty(t, watch.notAlive(), "a database that is away is no reason to kill anybody")

	stop()
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	// What waits for the lease of a call that the outage cut need not be waited for here.
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case err := <-errs:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			h.travel(t, 100*time.Second)
		}
	}
	h.travel(t, 100*time.Second)
	h.eventually(t, 30*time.Second, 0, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`)
	h.eventually(t, 30*time.Second, 0, unpublished)
	h.eventually(t, 60*time.Second, 0, undone)
	h.refresh(t)
	for _, name := range []string{"payment_api", "admin_api", "outbox_relay", "webhook_dispatcher"} {
		require.Equal(t, before[name], h.PIDs[name], "no process ended")
	}
	require.Zero(t, h.count(t, undelivered))
	h.requireSettled(t, int(bought.Load()))
	require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE attempt_count <> 1`), "deliveries that took more than one attempt")
	again := 0
	for _, s := range shops {
		for _, hooks := range rx.at(s.path) {
			again += len(hooks) - 1
		}
	}
	// What was in flight when Postgres went, and whose lease ended before its result could be kept.
	require.LessOrEqual(t, again, 2*4*len(shops))
	fmt.Printf("outages: broker away %s: %d purchases meanwhile, work resumed after %s, caught up %s later; Postgres away %s: work resumed after %s; "+
		"%d purchases, each charged once, 0 parked, every delivery DELIVERED by 1 attempt (%d POSTs repeated), no process ended; load %s\n",
		length, withoutKafka, kafkaResumed, backlog, length, postgresResumed, bought.Load(), again, loadAverage())
}

const (
	// After the broker's return the oldest events go first, so the first of them says that work goes on.
	anything = `
		SELECT count(*) FROM apipay.outbound_webhook_attempts a JOIN apipay.outbox_events e ON e.id = a.event_id
		WHERE e.published_at > $1 AND a.started_at > $1 AND a.outcome = 'succeeded'`
	// Nothing was paid without Postgres, so what is told first after its return was paid after it, too.
	anew = `
		SELECT count(*) FROM apipay.outbound_webhook_attempts a JOIN apipay.outbox_events e ON e.id = a.event_id
		WHERE e.created_at > $1 AND e.type = 'payment_intent.succeeded' AND a.outcome = 'succeeded'`
)

// resumed waits until the query, given the time of the return, finds something that went all the way, and tells how long that took.
func (h *hub) resumed(t *testing.T, query string) time.Duration {
	t.Helper()
	begun := time.Now()
	var since time.Time
	for since.IsZero() {
		// The test's own connections were cut, too.
		if err := h.owner.QueryRow(t.Context(), `SELECT now()`).Scan(&since); err != nil {
			require.Less(t, time.Since(begun), resumeLimit, "%v", err)
		}
	}
	stages := []struct{ name, query string }{
		{"an intent was created", `SELECT count(*) FROM apipay.payment_intents WHERE created_at > $1`},
		{"a payment succeeded", `SELECT count(*) FROM apipay.outbox_events WHERE created_at > $1 AND type = 'payment_intent.succeeded'`},
		{"it was published", `SELECT count(*) FROM apipay.outbox_events WHERE created_at > $1 AND type = 'payment_intent.succeeded' AND published_at IS NOT NULL`},
		{"it was read", `SELECT count(*) FROM apipay.webhook_events w JOIN apipay.outbox_events e ON e.id = w.event_id WHERE e.created_at > $1 AND e.type = 'payment_intent.succeeded'`},
	}
	for {
		var n int
		for len(stages) > 0 {
			require.NoError(t, h.owner.QueryRow(t.Context(), stages[0].query, since).Scan(&n))
			if n == 0 {
				break
			}
			t.Logf("%s after the return: %s", time.Since(begun).Round(100*time.Millisecond), stages[0].name)
			stages = stages[1:]
		}
		require.NoError(t, h.owner.QueryRow(t.Context(), query, since).Scan(&n))
		if n > 0 {
			return time.Since(begun).Round(100 * time.Millisecond)
		}
		require.Less(t, time.Since(begun), resumeLimit, "nothing was published and delivered after the return")
		time.Sleep(50 * time.Millisecond) // the distance of two looks
	}
}

// wait polls with a deadline of a minute.
func (h *hub) wait(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, 50*time.Millisecond, what)
}

// metric is the largest value of a metric at the relays.
func (h *hub) metric(t *testing.T, name string) float64 {
	t.Helper()
	largest := 0.0
	for _, ops := range h.URLs.Ops["outbox_relay"] {
		_, body := look(t.Context(), ops+"/metrics")
		for line := range strings.Lines(body) {
			var value float64
			series, text, ok := strings.Cut(strings.TrimSpace(line), "} ")
			if ok && strings.HasPrefix(series, name+"{") {
				if _, err := fmt.Sscan(text, &value); err == nil {
					largest = max(largest, value)
				}
			}
		}
	}
	return largest
}

// watched are the probes of every replica, looked at twice a second.
type watched struct {
	stop func()

	mu    sync.Mutex
	looks map[string][]sight // by service and replica
	dead  []string
}

type sight struct {
	at     time.Time
	status int
	text   string
}

func (h *hub) watchProbes(t *testing.T) *watched {
	t.Helper()
	w := &watched{looks: map[string][]sight{}}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for name, replicas := range h.URLs.Ops {
		for i, ops := range replicas {
			all.Go(func() {
				tick := time.NewTicker(500 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
					ready, text := look(ctx, ops+"/readyz")
					alive, why := look(ctx, ops+"/livez")
					if ctx.Err() != nil {
						return
					}
					w.mu.Lock()
					replica := fmt.Sprintf("%s/%d", name, i+1)
					w.looks[replica] = append(w.looks[replica], sight{time.Now(), ready, text})
					if alive != http.StatusOK {
						w.dead = append(w.dead, fmt.Sprintf("%s %s: %d %s", time.Now().Format("15:04:05.000"), replica, alive, why))
					}
					w.mu.Unlock()
				}
			})
		}
	}
	w.stop = func() { cancel(); all.Wait() }
	t.Cleanup(w.stop)
	return w
}

func look(ctx context.Context, url string) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	response, err := probes.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// saw reports whether any replica of the service has said so.
func (w *watched) saw(service, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for replica, sights := range w.looks {
		if strings.HasPrefix(replica, service) && slices.ContainsFunc(sights, func(s sight) bool { return strings.Contains(s.text, text) }) {
			return true
		}
	}
	return false
}

// unready reports whether every replica of the service has answered 503.
func (w *watched) unready(service string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := false
	for replica, sights := range w.looks {
		if strings.HasPrefix(replica, service) {
			found = true
			if !slices.ContainsFunc(sights, func(s sight) bool { return s.status == http.StatusServiceUnavailable }) {
				return false
			}
		}
	}
	return found
}

func (w *watched) unreadyNow() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for replica, sights := range w.looks {
		if sights[len(sights)-1].status != http.StatusOK {
			list = append(list, replica)
		}
	}
	return list
}

func (w *watched) notReady() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for replica, sights := range w.looks {
		for _, s := range sights {
			if s.status != http.StatusOK {
				list = append(list, fmt.Sprintf("%s %s: %d %s", s.at.Format("15:04:05.000"), replica, s.status, s.text))
			}
		}
	}
	return list
}

func (w *watched) notAlive() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}
