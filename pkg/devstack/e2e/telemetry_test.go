package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

// traced sends one request inside a trace of the caller's and answers the trace's id and the caller's span.
func (c *client) traced(t *testing.T, want int, path, key, body string) (object, string, string) {
	t.Helper()
	trace := strings.ReplaceAll(uuid.NewString(), "-", "")
	parent := strings.ReplaceAll(uuid.NewString(), "-", "")[:16]
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.urls[0]+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, want, response.StatusCode, "%s", raw)
	answer := object{}
	require.NoError(t, json.Unmarshal(raw, &answer))
	return answer, trace, parent
}

// TestTraces follows one payment over all four services: the request, its gateway call, the outbox row, the batch that
// carried it (linked), the record's header, the attempt that failed, the retry by support, the attempt after it.
func TestTraces(t *testing.T) {
	c := collect(t)
	h := start(t, append(c.environ(), "APIPAY_WEBHOOK_RETRY_SCHEDULE=10m")...)
	rx := listen(t)
	rx.answer(http.StatusInternalServerError)
	staff := h.staff(t)
	merchant := h.merchant(t, staff, "Traced")
	endpoint := merchant.must(t, http.StatusCreated, "POST", "/v1/webhook-endpoints", "",
		object{"url": rx.url + "/traced?token=marker-query", "enabled_events": []string{"payment_intent.succeeded"}})
	intent := merchant.must(t, http.StatusCreated, "POST", "/v1/payment-intents", uuid.NewString(),
		object{"amount": 4711, "currency": "EUR", "description": "marker-body", "metadata": object{"order": "marker-metadata"}})
	_, trace, caller := merchant.traced(t, http.StatusOK, "/v1/payment-intents/"+intent.text("id")+"/confirm", "marker-key",
		`{"payment_method": "pm_card_visa"}`)

	in := func(name, service string) func(span) bool {
		return func(s span) bool { return s.trace() == trace && s.service == service && s.Name == name }
	}
	request := c.one(t, "the request", in("POST /v1/payment-intents/:id/confirm", "payment-api"))
	require.Equal(t, caller, request.parent())
	charge := c.one(t, "the gateway call", in("gateway.charge", "payment-api"))
	require.Equal(t, request.id(), charge.parent())

	// What the outbox row carries is the trace and a span of the request.
	var traceparent, eventID string
	require.NoError(t, h.owner.QueryRow(t.Context(), `SELECT traceparent, convert_from(payload, 'UTF8')::jsonb ->> 'id' FROM apipay.outbox_events WHERE type = 'payment_intent.succeeded'`).
		Scan(&traceparent, &eventID))
	parts := strings.Split(traceparent, "-")
	require.Equal(t, trace, parts[1])
	writer := parts[2]
	require.Equal(t, request.id(), writer, "the row was written inside the request")

	// A batch serves many requests: it has a trace of its own, with links.
	batch := c.one(t, "the batch", func(s span) bool {
		if s.service != "outbox-relay" || s.Name != "outbox.publish" || s.attribute("messaging.destination.name") != events.TopicOutboundWebhooks {
			return false
		}
		for _, link := range s.Links {
			if (span{Span: s.Span}).trace() != trace && hexOf(link.TraceId) == trace && hexOf(link.SpanId) == writer {
				return true
			}
		}
		return false
	})
	require.Empty(t, batch.parent())
	require.Equal(t, traceparent, h.headerOf(t, eventID, "traceparent"))

	first := c.one(t, "the attempt that fails", in("delivery.attempt", "webhook-dispatcher"))
	require.Equal(t, writer, first.parent())
	whd := h.text(t, `SELECT id::text FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING'`)
	delivery := staff.must(t, http.StatusOK, "GET", "/admin/v1/webhook-deliveries?status=RETRYING", "", nil)
	require.NotEmpty(t, whd)
	require.Len(t, delivery["data"], 1)
	id := object(delivery["data"].([]any)[0].(map[string]any)).text("id")
	require.Equal(t, id, first.attribute("delivery.id"))

	rx.answer(http.StatusOK)
	_, staffTrace, staffCaller := staff.traced(t, http.StatusAccepted, "/admin/v1/webhook-deliveries/"+id+"/retry", "", `{}`)
	retry := c.one(t, "the retry by support", func(s span) bool {
		return s.trace() == staffTrace && s.service == "admin-api" && strings.HasPrefix(s.Name, "POST /admin/v1/webhook-deliveries/")
	})
	require.Equal(t, staffCaller, retry.parent())
	require.Len(t, retry.Links, 1, "the retry leads to the payment's trace")
	require.Equal(t, trace, hexOf(retry.Links[0].TraceId))
	require.Equal(t, staffTrace, strings.Split(h.text(t, `SELECT traceparent FROM apipay.outbox_events WHERE topic = 'apipay.audit.v1' AND convert_from(payload, 'UTF8') LIKE '%webhook_delivery.retry%'`), "-")[1],
		"what support did is told within its own trace")

	attempts := c.some(t, 2, "the attempt after it", in("delivery.attempt", "webhook-dispatcher"))
	for _, a := range attempts {
		require.Equal(t, writer, a.parent())
	}
	// The merchant can go on with the trace.
	posts := rx.at("/traced")[eventID]
	require.Len(t, posts, 2)
	for i, post := range posts {
		require.Equal(t, "00-"+trace+"-"+attempts[i].id()+"-01", post.header.Get("Traceparent"))
	}

	// Metrics are pushed, too, by all four.
	for service, name := range map[string]string{
		"payment-api": "apipay.gateway.call.duration", "outbox-relay": "apipay.outbox.published",
		"webhook-dispatcher": "apipay.webhook.attempts", "admin-api": "http.server.request.duration",
	} {
		require.Eventually(t, func() bool {
			for _, pushed := range c.names(service) {
				if pushed == name {
					return true
				}
			}
			return false
		}, 10*time.Second, 50*time.Millisecond, "%s of %s", name, service)
	}

	pushed := c.everything()
	require.True(t, strings.Contains(pushed, "INSERT INTO apipay."), "statements are seen, without their values")
	for _, secret := range []string{"marker-", merchant.token, staff.token, endpoint.text("secret"), rx.url, "/traced", "pm_card_visa"} {
		require.False(t, strings.Contains(pushed, secret), "%s was pushed", secret)
	}
}

// headerOf is a header of an event's record on the topic of webhooks.
func (h *hub) headerOf(t *testing.T, eventID, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var partition int
	var offset int64
	require.NoError(t, h.owner.QueryRow(ctx, `SELECT kafka_partition, kafka_offset FROM apipay.outbox_events
		WHERE convert_from(payload, 'UTF8')::jsonb ->> 'id' = $1`, eventID).Scan(&partition, &offset))
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: h.Kafka.Brokers, Topic: events.TopicOutboundWebhooks, Partition: partition})
	defer reader.Close()
	require.NoError(t, reader.SetOffset(offset))
	message, err := reader.ReadMessage(ctx)
	require.NoError(t, err)
	for _, header := range message.Headers {
		if header.Key == name {
			return string(header.Value)
		}
	}
	return ""
}

func (h *hub) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	var text string
	require.NoError(t, h.owner.QueryRow(t.Context(), query, args...).Scan(&text), query)
	return text
}
