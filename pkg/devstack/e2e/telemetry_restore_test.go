package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/proto/events"
)

// toolsDir is where pg_dump and pg_restore are, of the same version as the server that the stack is to run.
func toolsDir(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	require.NoError(t, err)
	dirs := []string{os.Getenv("APIPAY_POSTGRES_BIN")}
	for _, tool := range slices.Backward(found) {
		dirs = append(dirs, filepath.Dir(tool))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "pg_restore")); dir != "" && err == nil {
			return dir
		}
	}
	t.Skip("no pg_dump and pg_restore on this machine (Debian: postgresql-15)")
	return ""
}

// TestRestore follows docs/runbooks/restore-from-backup.md: a dump of the running hub by the owner, more traffic, then the
// database is lost and made anew from the dump. What was not published is; nothing is charged twice; what merchants and
// consumers get a second time has the same id and bytes; what was read from Kafka but not yet delivered is delivered.
func TestRestore(t *testing.T) {
	tools := toolsDir(t)
	h := start(t, "APIPAY_POSTGRES_BIN="+tools, "APIPAY_GATEWAY_TIMEOUT=1s", "APIPAY_IDEMPOTENCY_LEASE=3s", "APIPAY_GATEWAY_VISIBILITY_DELAY=1s")
	rx := listen(t)
	shops := h.shops(t, rx, 2)
	require.NoError(t, load(t.Context(), shops, 10))
	h.eventually(t, 20*time.Second, 0, undone)
	// Published, but not read by a dispatcher before the dump.
	h.devstack(t, "stop", "webhook-dispatcher")
	require.NoError(t, load(t.Context(), shops, 10))
	h.eventually(t, 20*time.Second, 0, unpublished)
	// Not even published before it.
	h.devstack(t, "stop", "outbox-relay")
	require.NoError(t, load(t.Context(), shops, 10))
	// An outcome that is open.
	_, open, err := shops[0].do(t.Context(), "POST", "/v1/payment-intents", uuid.NewString(),
		object{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_timeout_then_succeeds", "confirm": true})
	require.NoError(t, err)
	require.Equal(t, "processing", open.text("status"))
	h.devstack(t, "kill", "payment-api")

	dump := filepath.Join(t.TempDir(), "apipay.dump")
	run(t, filepath.Join(tools, "pg_dump"), h.Postgres["owner"], "--enable-row-security", "--schema=apipay", "--format=custom", "--file="+dump)

	// The world goes on: all of it is published and delivered.
	for _, service := range []string{"payment-api", "outbox-relay", "webhook-dispatcher"} {
		h.devstack(t, "start", service)
	}
	h.eventually(t, 20*time.Second, 0, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`)
	h.eventually(t, 20*time.Second, 0, unpublished)
	h.eventually(t, 20*time.Second, 0, undone)
	told := h.count(t, `SELECT count(*) FROM apipay.outbox_events WHERE topic = $1`, events.TopicOutboundWebhooks)

	// The loss, and the way back.
	for _, service := range serviceNames {
		h.devstack(t, "stop", service)
	}
	h.owner.Reset()
	h.emptyDatabase(t)
	list := run(t, filepath.Join(tools, "pg_restore"), "--list", dump)
	kept := filepath.Join(t.TempDir(), "list")
	lines := slices.DeleteFunc(strings.Split(list, "\n"), func(line string) bool { return strings.Contains(line, " SCHEMA - ") })
	require.NoError(t, os.WriteFile(kept, []byte(strings.Join(lines, "\n")), 0o600))
	run(t, filepath.Join(tools, "pg_restore"), "--dbname="+h.Postgres["owner"], "--exit-on-error", "--no-owner", "--use-list="+kept, dump)
	migrate := exec.Command(filepath.Join(repository, "bin/migrate"), "up")
	migrate.Env = append(os.Environ(), "APIPAY_DATABASE_URL="+h.Postgres["owner"])
	out, err := migrate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Positive(t, h.count(t, unpublished), "the dump is from before they were published")
	require.Equal(t, 1, h.count(t, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`))
	h.rewind(t)
	for _, service := range serviceNames {
		h.devstack(t, "start", service)
	}

	h.eventually(t, 20*time.Second, 0, `SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`)
	h.eventually(t, 20*time.Second, 0, unpublished)
	// The topic has more than the database: what became of the open attempt was told after the dump, and is told again,
	// under another id.
	h.eventually(t, 20*time.Second, 0, `
		SELECT count(*) FROM apipay.outbox_events o WHERE topic = 'apipay.outbound-webhooks.v1' AND NOT EXISTS (
		    SELECT FROM apipay.outbound_webhook_deliveries d WHERE d.event_id = o.id AND d.status = 'DELIVERED')`)
	require.Equal(t, 31, h.count(t, `SELECT count(*) FROM apipay.payment_intents WHERE status = 'succeeded'`))
	require.Equal(t, 31, h.count(t, `SELECT count(*) FROM apipay.sandbox_charges WHERE kind = 'charge' AND status = 'succeeded'`), "one charge each")
	require.Zero(t, h.count(t, `SELECT count(*) FROM (SELECT payment_intent_id FROM apipay.payment_attempts WHERE kind = 'charge' AND status = 'succeeded'
		GROUP BY 1 HAVING count(*) > 1) twice`))
	again := 0
	for _, s := range shops {
		for _, hooks := range rx.at(s.path) {
			again += len(hooks) - 1
			for _, repeated := range hooks {
				require.Equal(t, string(hooks[0].body), string(repeated.body))
				verify(t, repeated, s.secret)
			}
		}
	}
	require.Positive(t, again)
	t.Logf("%d events; %d webhooks came twice, with the same id and body", told, again)
	bodies := map[string][]byte{}
	for _, r := range h.readTopic(t, events.TopicOutboundWebhooks) {
		if first, ok := bodies[r.id]; ok {
			require.True(t, bytes.Equal(first, r.value), "%s was published with other bytes", r.id)
		}
		bodies[r.id] = r.value
	}
	// Merchants go on as if nothing had been.
	require.NoError(t, load(t.Context(), shops, 4))
	shops[0].must(t, http.StatusOK, "GET", "/v1/payment-intents/"+open.text("id"), "", nil)
}

// run runs a program and answers what it printed.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, "%s: %s", filepath.Base(program), stderr.String())
	return string(out)
}

// emptyDatabase drops the hub's database and makes an empty one with its schema, as bootstrap.sql does.
func (h *hub) emptyDatabase(t *testing.T) {
	t.Helper()
	var secrets struct {
		SuperuserPassword string `json:"superuser_password"`
	}
	content, err := os.ReadFile(filepath.Join(h.dir, "secrets.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &secrets))
	super := func(database string) *pgx.Conn {
		dsn, err := url.Parse(h.Postgres["owner"])
		require.NoError(t, err)
		dsn.User, dsn.Path = url.UserPassword("postgres", secrets.SuperuserPassword), "/"+database
		conn, err := pgx.Connect(t.Context(), dsn.String())
		require.NoError(t, err)
		return conn
	}
	conn := super("postgres")
	_, err = conn.Exec(t.Context(), `DROP DATABASE apipay WITH (FORCE)`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE DATABASE apipay`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	bootstrap, err := os.ReadFile(filepath.Join(repository, "migrations/bootstrap.sql"))
	require.NoError(t, err)
	conn = super("apipay")
	_, err = conn.PgConn().Exec(t.Context(), string(bootstrap)).ReadAll()
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// rewind sets the consumer group back to the beginning of the topic: what was read after the dump is read again.
func (h *hub) rewind(t *testing.T) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(h.Kafka.Brokers...), Timeout: 10 * time.Second, Transport: &kafka.Transport{}}
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	metadata, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{events.TopicOutboundWebhooks}})
	require.NoError(t, err)
	var back []kafka.OffsetCommit
	for _, p := range metadata.Topics[0].Partitions {
		back = append(back, kafka.OffsetCommit{Partition: p.ID, Offset: 0})
	}
	answer, err := client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{GroupID: "webhook-dispatcher", GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{events.TopicOutboundWebhooks: back}})
	require.NoError(t, err)
	for _, p := range answer.Topics[events.TopicOutboundWebhooks] {
		require.NoError(t, p.Error)
	}
}
