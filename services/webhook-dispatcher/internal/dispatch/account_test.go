package dispatch

import (
	"net/http"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/proto/events"
)

var (
	ok      = outcome{succeeded: true}
	refused = outcome{}
	gone    = outcome{gone: true}
	silence = outcome{unreachable: true}
)

// step is results at a time since the endpoint was switched on.
type step struct {
	at      time.Duration
	outcome outcome
	times   int
}

// C9, B75, by the clock.
func TestEndpointState_Tells(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	const failing, disabled, recovered = events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointDisabled, events.TypeWebhookEndpointRecovered
	daily := func(days int) (steps []step) {
		for d := range days {
			steps = append(steps, step{time.Duration(d) * day, refused, 2})
		}
		return steps
	}
	for name, test := range map[string]struct {
		steps []step
		want  []string
	}{
		"one failure, then silence":           {[]step{{0, refused, 1}, {8 * day, refused, 1}}, []string{failing}},
		"all fail for seven days":             {daily(8), []string{failing, failing, disabled}},
		"a success on day six":                {append(daily(6), step{6 * day, ok, 1}, step{7 * day, refused, 20}), []string{failing, failing, recovered}},
		"only in the last hour":               {[]step{{0, ok, 1}, {7 * day, refused, 50}, {7*day + time.Hour, refused, 50}}, nil},
		"one event a day is still caught":     {[]step{{0, refused, 1}, {day, refused, 1}, {2 * day, refused, 1}, {3 * day, refused, 1}, {4 * day, refused, 1}, {5 * day, refused, 1}, {6 * day, refused, 1}, {7 * day, refused, 3}}, []string{failing, failing, disabled}},
		"nine attempts are too few":           {[]step{{0, refused, 1}, {7 * day, refused, 8}}, []string{failing}},
		"gone":                                {[]step{{0, gone, 1}}, []string{disabled}},
		"recovered is for what was told only": {[]step{{0, refused, 3}, {time.Hour, ok, 2}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			s := endpointState{EnabledAt: start}
			var told []string
			for _, step := range test.steps {
				for range step.times {
					var said *tell
					if s, said = s.after(step.outcome, start.Add(step.at)); said != nil {
						told = append(told, said.eventType)
						if said.eventType == disabled {
							require.Equal(t, test.want, told)
							return
						}
					}
				}
			}
			require.Equal(t, test.want, told)
		})
	}
}

func TestEndpointState_EnablingClears(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := endpointState{EnabledAt: start}
	for range 20 {
		s, _ = s.after(silence, start)
	}
	require.NotNil(t, s.BreakerOpenedAt)
	s.EnabledAt = start.Add(8 * 24 * time.Hour)
	cleared, _ := s.after(ok, s.EnabledAt.Add(time.Minute))
	require.Nil(t, cleared.LastFailureAt, "it belongs to the failures of before")
	s, said := s.after(silence, s.EnabledAt.Add(time.Minute))
	require.Nil(t, said, "one failure after re-enabling does not disable")
	require.EqualValues(t, 1, s.FailedAttempts)
	require.EqualValues(t, 1, s.ConsecutiveUnreachable)
	require.Nil(t, s.BreakerOpenedAt)
}

func TestEndpointState_BreakerCountsInARow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := endpointState{EnabledAt: now}
	for range 20 {
		for range breakerOpensAt - 1 {
			s, _ = s.after(silence, now)
		}
		require.Nil(t, s.BreakerOpenedAt)
		s, _ = s.after(refused, now)
	}
	for range breakerOpensAt {
		s, _ = s.after(silence, now)
	}
	require.NotNil(t, s.BreakerOpenedAt)
	require.Equal(t, now.Add(probeEvery), *s.NextProbeAt)
	s, _ = s.after(refused, now)
	require.NotNil(t, s.BreakerOpenedAt, "only a success closes it")
	s, _ = s.after(ok, now)
	require.Nil(t, s.BreakerOpenedAt)
}

// C3, B62: 410 switches off, tells once, in the transaction of the attempt; the rest is failed.
func TestRecord_Gone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, status(410))
	endpointID, _ := b.endpoint(rx.URL)
	one, two := b.dispatcher(), b.dispatcher()
	var batch []kafka.Message
	for range 40 {
		batch = append(batch, b.record(b.tenant, succeeded, nil))
	}
	require.NoError(t, one.materialize(t.Context(), batch))
	b.run(one)
	b.run(two)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'FAILED' AND failure_reason = 'endpoint_disabled'`) == 40
	}, "the rest is failed")
	require.LessOrEqual(t, len(rx.got()), 2*b.config.EndpointConcurrency+4)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_endpoints WHERE status = 'disabled' AND disabled_reason = 'gone' AND version = 1`))
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.audit_log WHERE action = 'webhook_endpoint.disabled' AND target = $1`, id.Format(id.Endpoint, endpointID)))
	b.expectTold(events.TypeWebhookEndpointDisabled)
}

// expectTold compares the outbox with the events expected, each of them valid by the contract.
func (b *testBundle) expectTold(want ...string) {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT type, payload FROM apipay.outbox_events WHERE topic = 'apipay.outbound-webhooks.v1' ORDER BY seq`)
	require.NoError(b.t, err)
	defer rows.Close()
	var told []string
	for rows.Next() {
		var eventType string
		var payload []byte
		require.NoError(b.t, rows.Scan(&eventType, &payload))
		_, err := events.ParseStrict(payload)
		require.NoError(b.t, err)
		told = append(told, eventType)
	}
	require.Equal(b.t, want, told)
}

// E5: failing, disabled, recovered: once each, with two dispatchers over the threshold together.
func TestRecord_TellsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	healthy := make(chan struct{})
	rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		select {
		case <-healthy:
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	endpointID, _ := b.endpoint(rx.URL)
	one, two := b.dispatcher(), b.dispatcher()
	b.run(one)
	b.run(two)
	fail := func() {
		var batch []kafka.Message
		for range 30 {
			batch = append(batch, b.record(b.tenant, succeeded, nil))
		}
		require.NoError(b.t, one.materialize(t.Context(), batch))
		b.eventually(func() bool {
			return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE attempt_count = 0 AND status = 'PENDING' OR lease_until IS NOT NULL`) == 0
		}, "all attempted")
	}
	since := func(d time.Duration) {
		b.exec(`UPDATE apipay.webhook_endpoint_states SET failing_since = now() - $1::interval`, d)
	}
	fail()
	b.expectTold()
	since(25 * time.Hour)
	fail()
	b.expectTold(events.TypeWebhookEndpointFailing)
	since(4*24*time.Hour + time.Hour)
	fail()
	b.expectTold(events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointFailing)
	since(7*24*time.Hour + time.Hour)
	fail()
	b.expectTold(events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointDisabled)
	require.Equal(t, 3, b.count(`SELECT version FROM apipay.webhook_endpoints`))

	b.exec(`UPDATE apipay.webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = now()`)
	close(healthy)
	eventID := b.publish(two, succeeded)
	b.waitFor(eventID, endpointID, "DELIVERED", 1)
	b.expectTold(events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointFailing, events.TypeWebhookEndpointDisabled, events.TypeWebhookEndpointRecovered)
}
