package dispatch

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/proto/events"
)

func (b *testBundle) deliveriesOf(eventID uuid.UUID) []uuid.UUID {
	b.t.Helper()
	rows, err := b.owner.Query(b.t.Context(), `SELECT endpoint_id FROM apipay.outbound_webhook_deliveries WHERE event_id = $1 ORDER BY 1`, eventID)
	require.NoError(b.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(b.t, err)
	return list
}

func idOf(t *testing.T, record kafka.Message) uuid.UUID {
	t.Helper()
	a, refused := read(record)
	require.Nil(t, refused)
	return a.eventID
}

func TestMaterialize_ChoosesEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	all, _ := b.endpoint("https://a.example/")
	some, _ := b.endpoint("https://b.example/", "refund.created", succeeded)
	b.endpoint("https://c.example/", "refund.created")
	live, _ := b.endpoint("https://d.example/")
	b.exec(`DELETE FROM apipay.webhook_endpoint_secrets WHERE endpoint_id = $1`, live)
	b.exec(`UPDATE apipay.webhook_endpoints SET livemode = true WHERE id = $1`, live)
	later, _ := b.endpoint("https://e.example/")
	b.exec(`UPDATE apipay.webhook_endpoints SET created_at = now() + interval '2 seconds' WHERE id = $1`, later)
	deleted, _ := b.endpoint("https://f.example/")
	b.exec(`UPDATE apipay.webhook_endpoints SET deleted_at = now() WHERE id = $1`, deleted)
	b.endpointOf(b.newTenant(), "https://g.example/")

	object := map[string]any{"id": id.Format(id.Endpoint, all), "object": "webhook_endpoint"}
	ping, disabled := b.record(b.tenant, "ping", object), b.record(b.tenant, "webhook_endpoint.disabled", object)
	ordinary, unheard := b.record(b.tenant, succeeded, nil), b.record(b.newTenant(), succeeded, nil)
	require.NoError(t, d.materialize(t.Context(), asBatch(ping, disabled, ordinary, unheard)))

	require.ElementsMatch(t, []uuid.UUID{all, some}, b.deliveriesOf(idOf(t, ordinary)))
	require.ElementsMatch(t, []uuid.UUID{all}, b.deliveriesOf(idOf(t, ping)))
	require.Empty(t, b.deliveriesOf(idOf(t, disabled)), "not to the endpoint it is about, and nobody else asked for it")
	require.Equal(t, 0, b.count(`SELECT endpoints_matched FROM apipay.webhook_events WHERE event_id = $1`, idOf(t, unheard)))
	require.Equal(t, 2, b.count(`SELECT endpoints_matched FROM apipay.webhook_events WHERE event_id = $1`, idOf(t, ordinary)))

	// A5: again and again, in the same batch too, and with an endpoint that was made meanwhile.
	fresh, _ := b.endpoint("https://h.example/")
	require.NoError(t, d.materialize(t.Context(), asBatch(ordinary, ordinary, ordinary)))
	require.NoError(t, b.dispatcher().materialize(t.Context(), asBatch(ordinary)))
	require.NotContains(t, b.deliveriesOf(idOf(t, ordinary)), fresh)
	require.Equal(t, 4, b.count(`SELECT count(*) FROM apipay.webhook_events`))
}

// An endpoint of the same second as the event gets it: times are compared in whole seconds.
func TestMaterialize_SameSecond(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("https://a.example/")
	at := time.Now().Truncate(time.Second)
	b.exec(`UPDATE apipay.webhook_endpoints SET created_at = $1`, at.Add(900*time.Millisecond))
	record := recordAt(b.tenant, succeeded, nil, at, false)
	require.NoError(t, b.dispatcher().materialize(t.Context(), asBatch(record)))
	require.Equal(t, []uuid.UUID{endpointID}, b.deliveriesOf(idOf(t, record)))
}

// A6: any bytes that are JSON reach the row as they came.
func TestMaterialize_BytesStay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	for i, object := range []string{
		`{"b":1,"a":2,"n":9007199254740993,"big":123456789012345678901234567890}`, `{"a":1,"a":2}`, `{"u":"\u00e9é\ud83d\ude00","s":"\/"}`,
		"{ \"x\" :\t1e400 }", `{}`,
	} {
		eventID := id.New()
		value := fmt.Sprintf(`{"type":%q, "id":%q,"created":%d,"livemode":false,"data":{"object":%s}}`, succeeded, id.Format(id.Event, eventID), time.Now().Unix(), object)
		require.NoError(t, d.materialize(t.Context(), asBatch(kafka.Message{Topic: events.TopicOutboundWebhooks, Offset: int64(i),
			Key: []byte(b.tenant.String()), Value: []byte(value)})))
		var body []byte
		b.scan(`SELECT body FROM apipay.webhook_events WHERE event_id = $1`, []any{eventID}, &body)
		require.Equal(t, sha256.Sum256([]byte(value)), sha256.Sum256(body))
	}
}

// A9, B73: what can never be processed is kept with its reason and its place, and stops nothing.
func TestMaterialize_Poison(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpointID, _ := b.endpoint("https://a.example/")
	good := b.record(b.tenant, succeeded, nil)
	with := func(change func(*kafka.Message)) kafka.Message {
		record := b.record(b.tenant, succeeded, nil)
		change(&record)
		return record
	}
	replace := func(old, fresh string) func(*kafka.Message) {
		return func(r *kafka.Message) { r.Value = []byte(strings.Replace(string(r.Value), old, fresh, 1)) }
	}
	batch := []kafka.Message{good}
	reasons := map[int64]string{}
	add := func(reason string, record kafka.Message) {
		record.Partition, record.Offset = 3, int64(len(batch))
		reasons[record.Offset] = reason
		batch = append(batch, record)
	}
	add("not_json", with(func(r *kafka.Message) { r.Value = []byte("hello") }))
	add("not_json", with(func(r *kafka.Message) { r.Value = nil }))
	add("invalid_tenant_key", with(func(r *kafka.Message) { r.Key = nil }))
	add("invalid_tenant_key", with(func(r *kafka.Message) { r.Key = []byte(strings.ToUpper(string(r.Key))) }))
	add("unknown_type", with(replace(succeeded, "payment_intent.exploded")))
	add("wrong_topic", with(replace(succeeded, "payment_attempt.started")))
	add("unknown_tenant", with(func(r *kafka.Message) { r.Key = []byte(uuid.NewString()) }))
	add("unknown_version", with(replace(`"v1"`, `"v99"`)))
	add("unknown_version", with(replace(`"v1"`, `"9999-99-99"`)))
	add("too_large", with(func(r *kafka.Message) { r.Value = bytes.Repeat([]byte(" "), 1<<20) }))
	add("not_json", with(replace(`"object":"payment_intent"`, `"object":"\u0000"`)))
	add("invalid_event", with(replace(`"livemode":false`, `"livemode":null`)))
	add("header_mismatch", with(func(r *kafka.Message) { r.Headers[0].Value = []byte(id.Format(id.Event, id.New())) }))
	add("expired", recordAt(b.tenant, succeeded, nil, time.Now().AddDate(0, 0, -60), false))
	add("id_in_future", recordAt(b.tenant, succeeded, nil, time.Now().AddDate(0, 0, 29), false))
	add("id_in_future", recordAt(b.tenant, succeeded, nil, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC), false))
	soon := recordAt(b.tenant, succeeded, nil, time.Now().AddDate(0, 0, 20), false)
	batch = append(batch, soon)
	last := b.record(b.tenant, succeeded, nil)
	batch = append(batch, last)

	d := b.dispatcher()
	for range 2 { // redelivery
		require.NoError(t, d.materialize(t.Context(), batch))
	}
	require.Equal(t, []uuid.UUID{endpointID}, b.deliveriesOf(idOf(t, good)))
	require.Equal(t, []uuid.UUID{endpointID}, b.deliveriesOf(idOf(t, last)))
	rows, err := b.owner.Query(t.Context(), `SELECT kafka_topic, kafka_partition, kafka_offset, key, value, reason, detail FROM apipay.quarantined_records`)
	require.NoError(t, err)
	defer rows.Close()
	found := 0
	for rows.Next() {
		var topic, reason, detail string
		var partition, offset int64
		var key, value []byte
		require.NoError(t, rows.Scan(&topic, &partition, &offset, &key, &value, &reason, &detail))
		require.Equal(t, events.TopicOutboundWebhooks, topic)
		require.EqualValues(t, 3, partition)
		require.Equal(t, reasons[offset], reason, detail)
		require.True(t, bytes.Equal(batch[offset].Value, value))
		require.True(t, bytes.Equal(batch[offset].Key, key))
		found++
	}
	require.Equal(t, len(reasons), found)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_events WHERE event_id = $1`, idOf(t, soon)))
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.webhook_events_default`))
}

// A record is processed after its reason is gone, once it is asked for.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.dispatcher()
	tenant := id.New()
	record := b.record(tenant, succeeded, nil)
	require.NoError(t, d.materialize(t.Context(), asBatch(record)))
	request := func() {
		require.EqualValues(t, 1, b.exec(`UPDATE apipay.quarantined_records SET replay_requested_at = now()`))
		_, err := d.replay(t.Context())
		require.NoError(t, err)
	}
	b.exec(`UPDATE apipay.quarantined_records SET reason = 'an older reason', detail = NULL`)
	request()
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE replayed_at IS NULL AND replay_requested_at IS NULL
		AND last_replay_at IS NOT NULL AND reason <> 'an older reason' AND detail IS NOT NULL`), "refused again, with a trace")
	b.exec(`INSERT INTO apipay.tenants (id, name) VALUES ($1, 'late')`, tenant)
	endpointID, _ := b.endpointOf(tenant, "https://a.example/")
	request()
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE replayed_at IS NOT NULL`))
	require.Equal(t, []uuid.UUID{endpointID}, b.deliveriesOf(idOf(t, record)))
}
