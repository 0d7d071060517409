package dispatch

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripewebhook "github.com/stripe/stripe-go/v82/webhook"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
)

// The whole schedule of 14.6 hours, then a retry by hand: W10 to W13, B63.
func TestRetry_WholeSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, status(500))
	endpointID, secret := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	for n, step := range b.config.RetrySchedule {
		r := b.waitFor(eventID, endpointID, "RETRYING", n+1)
		require.Equal(t, retries, r.Priority)
		require.GreaterOrEqual(t, *r.NextIn+1, step.Seconds(), "never earlier")
		require.LessOrEqual(t, *r.NextIn, step.Seconds()*1.1+0.1)
		b.travel(step + step/10 + time.Second)
	}
	r := b.waitFor(eventID, endpointID, "FAILED", 6)
	require.Equal(t, failedExhausted, *r.FailureReason)
	require.Nil(t, r.NextIn)

	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	var deliveryID uuid.UUID
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT id FROM apipay.outbound_webhook_deliveries`).Scan(&deliveryID))
	_, err = webhook.RequestRetry(t.Context(), tx, webhook.DeliveryRef{ID: deliveryID}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	b.waitFor(eventID, endpointID, "FAILED", 7)

	list := b.attempts(eventID)
	require.Len(t, list, 7)
	for i, a := range list {
		require.Equal(t, i+1, a.Number)
		require.Equal(t, "failed", a.Outcome)
		require.Equal(t, "status", *a.ErrorClass)
		require.Equal(t, 500, *a.StatusCode)
	}
	require.Equal(t, "scheduled", list[5].Trigger)
	require.Equal(t, "manual", list[6].Trigger)

	got := rx.got()
	require.Len(t, got, 7)
	verifier, err := standard.NewWebhook(secret.Reveal())
	require.NoError(t, err)
	for _, request := range got {
		require.Equal(t, got[0].body, request.body)
		require.Equal(t, id.Format(id.Event, eventID), request.header.Get("Webhook-Id"))
		stamp, err := strconv.ParseInt(request.header.Get("Webhook-Timestamp"), 10, 64)
		require.NoError(t, err)
		require.InDelta(t, request.at.Unix(), stamp, 2)
		require.NoError(t, verifier.Verify(request.body, request.header))
		_, err = stripewebhook.ConstructEventWithOptions(request.body, request.header.Get("ApiPay-Signature"), secret.Reveal(),
			stripewebhook.ConstructEventOptions{Tolerance: 300 * time.Second, IgnoreAPIVersionMismatch: true})
		require.NoError(t, err)
	}
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.quarantined_records`), "what merchants do wrong is no dead letter")
}

func TestRetry_SucceedsLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	endpointID, _ := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	eventID := b.publish(d, succeeded)
	b.waitFor(eventID, endpointID, "RETRYING", 1)
	b.travel(2 * time.Minute)
	r := b.waitFor(eventID, endpointID, "DELIVERED", 2)
	require.NotNil(t, r.DeliveredAt)
	require.Equal(t, 1, b.count(`SELECT succeeded FROM apipay.webhook_endpoint_health`))
	require.Equal(t, 1, b.count(`SELECT failed FROM apipay.webhook_endpoint_health`))
	require.Equal(t, 1, b.count(`SELECT (failures->>'status')::int FROM apipay.webhook_endpoint_health`))
	require.Equal(t, 2, b.count(`SELECT sum(n)::int FROM apipay.webhook_endpoint_health, unnest(latency_buckets) n`))
}

func TestAfterFailure(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{time.Minute, time.Hour}
	for name, test := range map[string]struct {
		number     int
		retryAfter time.Duration
		received   bool
		status     string
		atLeast    time.Duration
		atMost     time.Duration
	}{
		"first":                  {number: 1, status: "RETRYING", atLeast: time.Minute, atMost: 66 * time.Second},
		"second":                 {number: 2, status: "RETRYING", atLeast: time.Hour, atMost: 66 * time.Minute},
		"last":                   {number: 3, status: "FAILED"},
		"by hand after the last": {number: 9, status: "FAILED"},
		"asked for later":        {number: 1, retryAfter: 2 * time.Minute, status: "RETRYING", atLeast: 2 * time.Minute, atMost: 2 * time.Minute},
		"asked for sooner":       {number: 2, retryAfter: time.Second, status: "RETRYING", atLeast: time.Hour, atMost: 66 * time.Minute},
		"asked for too much":     {number: 1, retryAfter: 300 * time.Hour, status: "RETRYING", atLeast: 12 * time.Hour, atMost: 12 * time.Hour},
		"asked after the last":   {number: 3, retryAfter: time.Hour, status: "FAILED"},
		"forced resend":          {number: 2, received: true, status: "DELIVERED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := afterFailure(schedule, test.number, test.retryAfter, test.received)
			require.Equal(t, test.status, got.status)
			require.Equal(t, test.status == "RETRYING", got.wait != nil)
			require.Equal(t, test.status == "FAILED", got.reason != nil)
			if got.wait != nil {
				require.GreaterOrEqual(t, *got.wait, test.atLeast)
				require.LessOrEqual(t, *got.wait, test.atMost)
			}
		})
	}
}

// C1: what failed in one second does not come back in one.
func TestJitter_SpreadsAndIsNeverEarly(t *testing.T) {
	t.Parallel()
	perSecond := map[int]int{}
	for range 10_000 {
		wait := jittered(time.Minute)
		require.GreaterOrEqual(t, wait, time.Minute)
		require.LessOrEqual(t, wait, 66*time.Second)
		perSecond[int(wait.Seconds())]++
	}
	require.GreaterOrEqual(t, len(perSecond), 6)
	for _, n := range perSecond {
		require.LessOrEqual(t, n, 3000)
	}
}

// C2 over the wire, B62.
func TestRetry_RetryAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, test := range map[string]struct {
		code   int
		header string
		want   time.Duration
	}{
		"429 seconds":   {429, "120", 2 * time.Minute},
		"503 seconds":   {503, "10", time.Minute},
		"429 date":      {429, "in ten minutes", 10 * time.Minute},
		"429 huge":      {429, "999999", 12 * time.Hour},
		"429 absurd":    {429, "1000000000000", time.Minute},
		"429 negative":  {429, "-1", time.Minute},
		"429 text":      {429, "soon", time.Minute},
		"500 is not it": {500, "7200", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				value := test.header
				if value == "in ten minutes" {
					value = time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat)
				}
				w.Header().Set("Retry-After", value)
				w.WriteHeader(test.code)
			})
			endpointID, _ := b.endpoint(rx.URL, "ping")
			d := b.dispatcher()
			stop := b.run(d)
			record := b.record(b.tenant, "ping", map[string]any{"id": id.Format(id.Endpoint, endpointID), "object": "webhook_endpoint"})
			a, _ := read(record)
			require.NoError(t, d.materialize(t.Context(), asBatch(record)))
			r := b.waitFor(a.eventID, endpointID, "RETRYING", 1)
			require.InDelta(t, test.want.Seconds(), *r.NextIn, test.want.Seconds()/10+3)
			require.GreaterOrEqual(t, *r.NextIn+3, test.want.Seconds())
			stop()
		})
	}
}

// C7: the target of a redirect is not asked; what is no 2xx is no success.
func TestSend_StatusDecides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	target := newReceiver(t, nil)
	d := b.dispatcher()
	b.run(d)
	for code, class := range map[int]string{
		301: "redirect", 302: "redirect", 303: "redirect", 307: "redirect", 308: "redirect", 304: "status",
		200: "", 202: "", 204: "", 299: "", 400: "status", 404: "status", 500: "status",
	} {
		rx := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			if class == "redirect" {
				w.Header().Set("Location", target.URL)
			}
			w.WriteHeader(code)
		})
		endpointID, _ := b.endpoint(rx.URL, "none")
		record := b.record(b.tenant, "ping", map[string]any{"id": id.Format(id.Endpoint, endpointID), "object": "webhook_endpoint"})
		a, _ := read(record)
		require.NoError(t, d.materialize(t.Context(), asBatch(record)))
		want := "RETRYING"
		if class == "" {
			want = "DELIVERED"
		}
		b.waitFor(a.eventID, endpointID, want, 1)
		list := b.attempts(a.eventID)
		require.Equal(t, code, *list[0].StatusCode)
		if class != "" {
			require.Equal(t, class, *list[0].ErrorClass, code)
		}
		require.Len(t, rx.got(), 1)
	}
	require.Empty(t, target.got())
}

// D6: one v1 per secret, the active one first.
func TestSend_RotatedSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, nil)
	endpointID, old := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	signatures := func(eventID uuid.UUID) (list []string, request received) {
		b.waitFor(eventID, endpointID, "DELIVERED", 1)
		got := rx.got()
		request = got[len(got)-1]
		return strings.Split(request.header.Get("ApiPay-Signature"), ",")[1:], request
	}
	expect := func(request received, secrets ...webhook.Secret) {
		stamp, err := strconv.ParseInt(request.header.Get("Webhook-Timestamp"), 10, 64)
		require.NoError(t, err)
		want := webhook.Sign(request.header.Get("Webhook-Id"), time.Unix(stamp, 0), request.body, secrets...)
		require.Equal(t, want.Signature, request.header.Get("ApiPay-Signature"))
		require.Equal(t, want.StandardSignature, request.header.Get("Webhook-Signature"))
	}
	list, request := signatures(b.publish(d, succeeded))
	require.Len(t, list, 1)
	expect(request, old)

	b.exec(`UPDATE apipay.webhook_endpoint_secrets SET expires_at = now() + interval '1 day'`)
	active := b.addSecret(b.tenant, endpointID, nil)
	list, request = signatures(b.publish(d, succeeded))
	require.Len(t, list, 2)
	expect(request, active, old)

	b.exec(`UPDATE apipay.webhook_endpoint_secrets SET expires_at = now() WHERE expires_at IS NOT NULL`)
	list, request = signatures(b.publish(d, succeeded))
	require.Len(t, list, 1)
	expect(request, active)
}

func verifyStandard(request received, secret webhook.Secret) error {
	verifier, err := standard.NewWebhook(secret.Reveal())
	if err != nil {
		return err
	}
	return verifier.Verify(request.body, request.header)
}
