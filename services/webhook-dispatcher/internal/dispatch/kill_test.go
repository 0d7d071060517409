package dispatch

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
)

// asProcess makes this test's binary a dispatcher of the consumer group that it names, so that it can be killed.
const asProcess = "DISPATCHER_AS_PROCESS"

func runAsProcess() error {
	cfg, err := config.Load[Config](os.Environ())
	if err != nil {
		return err
	}
	pool, err := postgres.Open(cfg.DatabaseURL, postgres.Options{MaxConns: MaxConns})
	if err != nil {
		return err
	}
	d, err := New(cfg, pool, ops.NewHealth(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	d.group = os.Getenv(asProcess)
	return d.Run(context.Background())
}

func (b *testBundle) process() *exec.Cmd {
	b.t.Helper()
	binary, err := os.Executable()
	require.NoError(b.t, err)
	cmd := exec.Command(binary)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "APIPAY_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, asProcess+"=1", "APIPAY_DATABASE_URL="+b.db.Worker, "APIPAY_KAFKA_BROKERS=127.0.0.1:1",
		"APIPAY_SECRETS_KEYSET="+b.config.SecretsKeyset, "APIPAY_WEBHOOK_ALLOW_CIDRS="+b.config.AllowCIDRs)
	require.NoError(b.t, cmd.Start())
	return cmd
}

func kill(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), "killed")
}

// A1, scaled down but by make soak: a dispatcher that is killed again and again loses nothing, and sends at most twice what was in flight.
func TestRun_KilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rx := newReceiver(t, func(int, http.ResponseWriter, *http.Request) { <-time.After(10 * time.Millisecond) })
	const endpoints = 5
	events, kills := soakCount(t, "KILLED_EVENTS", 60), soakCount(t, "KILLS", 4)
	for range endpoints {
		b.endpoint(rx.URL)
	}
	var batch []kafka.Message
	for range events {
		batch = append(batch, b.record(b.tenant, succeeded, nil))
	}
	require.NoError(t, b.dispatcher().materialize(t.Context(), batch))
	super := b.db.Pool(t, b.db.Super)
	inHand := 0
	for n := 1; n <= kills; n++ {
		cmd := b.process()
		// Recorded ones, so that each comes further: a third lease lost in a row would count as an attempt.
		b.eventually(func() bool { return b.delivered() >= n*endpoints*events/(kills+2) }, "sending")
		kill(t, cmd)
		// A claim that was on its way still commits: its lease must be there before time moves.
		b.eventually(func() bool {
			var sessions int
			require.NoError(t, super.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND usename = 'apipay_worker' AND application_name <> 'dispatcher-test'`).Scan(&sessions))
			return sessions == 0
		}, "the killed one's sessions to end")
		leases := b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE lease_until > now()`)
		require.LessOrEqual(t, leases, endpoints*b.config.EndpointConcurrency, "what is sent and not recorded counts against the cap")
		inHand += leases
		b.travel(2 * time.Minute)
	}
	cmd := b.process()
	defer kill(t, cmd)
	// What was in hand at three kills in a row counts as a lost attempt, and has its retry a minute later.
	waiting := `SELECT count(*) FROM apipay.outbound_webhook_deliveries WHERE status = 'PENDING' OR lease_token IS NOT NULL`
	b.eventually(func() bool { return b.count(waiting) == 0 }, "first attempts")
	b.travel(2 * time.Minute)
	b.eventually(func() bool { return b.delivered() == endpoints*events }, "all delivered")
	ids := map[string]int{}
	for _, request := range rx.got() {
		ids[request.header.Get("Webhook-Id")]++
	}
	require.Len(t, ids, events)
	require.LessOrEqual(t, len(rx.got()), endpoints*events+inHand, "only what was in hand at a kill is sent again")
	t.Logf("%d deliveries, %d kills: %d in hand at them, %d sent twice", endpoints*events, kills, inHand, len(rx.got())-endpoints*events)
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_deliveries d WHERE attempt_count <> 1 +
		(SELECT count(*) FROM apipay.outbound_webhook_attempts a
		 WHERE a.event_id = d.event_id AND a.delivery_id = d.id AND a.outcome = 'lost')`), "attempts are not inflated")
	require.Zero(t, b.count(`SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome NOT IN ('succeeded', 'lost')`))
}
