package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82/webhook"

	"apipay.io/hub/pkg/devstack/broker"
)

const secret = "whsec_P6lxHmiPK+AbY5g9Q38/UOubyO3R8dFrO7/PvW1Q+Tw="

// signed is a POST with the headers that the dispatcher sends, made by libraries that know nothing of it.
func signed(t *testing.T, url, body string) *http.Request {
	t.Helper()
	now := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	stripe := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: now})
	req.Header.Set("ApiPay-Signature", stripe.Header)
	standard, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	signature, err := standard.Sign("evt_1", now, []byte(body))
	require.NoError(t, err)
	req.Header.Set("webhook-id", "evt_1")
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	return req
}

func TestReceiver(t *testing.T) {
	t.Parallel()
	rx, err := listen()
	require.NoError(t, err)
	defer rx.close()
	post := func(path string) int {
		response, err := http.DefaultClient.Do(signed(t, rx.url+path, "{}"))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, post(pathGood))
	require.Equal(t, http.StatusInternalServerError, post(pathFailing))
	rx.repair()
	require.Equal(t, http.StatusOK, post(pathFailing))

	h, err := rx.wait(t.Context(), pathFailing, func(h hook) bool { return h.status == http.StatusOK })
	require.NoError(t, err)
	require.NoError(t, verify(h, secret))
	require.Error(t, verify(h, "whsec_"+"QkFE"), "another secret")
	h.body = []byte("{ }")
	require.Error(t, verify(h, secret), "other bytes")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = rx.wait(ctx, "/elsewhere", func(hook) bool { return true })
	require.ErrorContains(t, err, "waiting for a webhook at /elsewhere (3 POSTs came)")
}

func TestTopicTailFindsTheObjectsEvent(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Config{})
	require.NoError(t, err)
	defer b.Close()
	produce := func(partition int, event, kind, object string) {
		client := kafka.Client{Addr: kafka.TCP(b.Addrs()...)}
		value := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"object":{"id":%q}}}`, event, kind, object)
		response, err := client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value))}),
		})
		require.NoError(t, err)
		require.NoError(t, response.Error)
	}
	produce(5, "evt_old", eventType, "pi_1")
	tail, err := tailTopic(t.Context(), b.Addrs()[0], topic)
	require.NoError(t, err)
	produce(5, "evt_created", "payment_intent.created", "pi_1")
	produce(5, "evt_other", eventType, "pi_2")
	produce(5, "evt_new", eventType, "pi_1")
	found, err := tail.find(t.Context(), eventType, "pi_1")
	require.NoError(t, err)
	require.Equal(t, "evt_new", found.eventID)
	require.Equal(t, 5, found.partition)
	require.EqualValues(t, 3, found.offset)
}
