package dispatch

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
)

// anyJSON writes a JSON value as no encoder would: members in any order and twice, odd escapes, spaces, numbers beyond
// 2^53 or with exponents.
type anyJSON struct{ *rand.Rand }

func (r anyJSON) pick(choices ...string) string { return choices[r.IntN(len(choices))] }

func (r anyJSON) space() string { return r.pick("", "", " ", "\n", "\t", "\r\n  ") }

func (r anyJSON) text() string {
	var s strings.Builder
	for range r.IntN(12) {
		s.WriteString(r.pick("a", "Z", "é", "\U0001F600", `\u00e9`, `\u00E9`, `\ud83d\ude00`, `\/`, "/", `\"`, `\\`, `\b`, `\n`, "<", "&",
			"\u2028", `\u2028`, "\u00a0", "\x7f", `\u001f`, "'", "ß", "日"))
	}
	return `"` + s.String() + `"`
}

func (r anyJSON) value(depth int) string {
	switch n := r.IntN(9); {
	case depth > 0 && n < 3:
		return r.object(depth-1, r.IntN(5))
	case depth > 0 && n == 3:
		var items []string
		for range r.IntN(4) {
			items = append(items, r.space()+r.value(depth-1)+r.space())
		}
		return "[" + strings.Join(items, ",") + "]"
	case n < 6:
		return r.text()
	case n == 6:
		return r.pick("9007199254740993", "-9223372036854775809", "18446744073709551617", "1E400", "-0", "0.10", "1e-7", "100000000000000000000.5")
	}
	return r.pick("true", "false", "null", "0")
}

func (r anyJSON) object(depth, members int, more ...string) string {
	for range members {
		name := r.pick(r.text(), `"a"`, `"A"`, `"\u0061"`, `"amount"`)
		more = append(more, r.space()+name+r.space()+":"+r.space()+r.value(depth)+r.space())
	}
	r.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
	return "{" + strings.Join(more, ",") + "}"
}

// A6: what was published is in the row, and on the wire at every attempt, to the byte. The seed is told for a rerun.
func TestBytes_NeverChange(t *testing.T) {
	t.Parallel()
	const count = 400
	b := setup(t)
	newDispatcher, produce := b.onKafka()
	seen := map[string]bool{}
	rx := newReceiver(t, nil)
	rx.answer = func(_ int, w http.ResponseWriter, r *http.Request) {
		rx.mu.Lock()
		defer rx.mu.Unlock()
		if event := r.Header.Get("Webhook-Id"); !seen[event] {
			seen[event] = true
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	b.endpoint(rx.URL)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := anyJSON{rand.New(rand.NewPCG(seed, 0))}
	published := map[string][sha256.Size]byte{}
	var batch []kafka.Message
	for range count {
		record, name := b.oddRecord(random)
		published[name] = sha256.Sum256(record.Value)
		batch = append(batch, record)
	}
	b.run(newDispatcher())
	produce(batch...)
	b.eventually(func() bool {
		return b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'RETRYING'`) == count
	}, "first attempts; quarantined: %d", b.count(`SELECT count(*) FROM apipay.quarantined_records WHERE tenant_id = $1`, b.tenant))
	b.travel(2 * time.Minute)
	b.eventually(func() bool { return b.delivered() == count }, "all delivered")
	got := rx.got()
	require.Len(t, got, 2*count)
	for _, request := range got {
		require.Equal(t, published[request.header.Get("Webhook-Id")], sha256.Sum256(request.body), string(request.body))
	}
	rows, err := b.owner.Query(t.Context(), `SELECT event_id, sha256(body) FROM apipay.webhook_events`)
	require.NoError(t, err)
	defer rows.Close()
	kept := 0
	for ; rows.Next(); kept++ {
		var eventID uuid.UUID
		var sum []byte
		require.NoError(t, rows.Scan(&eventID, &sum))
		want := published[id.Format(id.Event, eventID)]
		require.Equal(t, want[:], sum)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, count, kept)
}

// oddRecord is an event whose envelope, too, is written in an unusual way.
func (b *testBundle) oddRecord(r anyJSON) (kafka.Message, string) {
	name := id.Format(id.Event, id.New())
	member := func(key, value string) string {
		return r.space() + `"` + key + `"` + r.space() + ":" + r.space() + value + r.space()
	}
	object := r.object(2, r.IntN(6), member("id", `"pi_x"`), member("object", `"payment_intent"`))
	value := r.object(0, 0, member("id", `"`+name+`"`), member("type", `"`+succeeded+`"`), member("created", fmt.Sprint(time.Now().Unix())),
		member("livemode", "false"), member("api_version", `"v1"`), member("data", "{"+member("object", object)+"}"))
	return kafka.Message{Key: []byte(b.tenant.String()), Value: []byte(r.space() + value + r.space())}, name
}
