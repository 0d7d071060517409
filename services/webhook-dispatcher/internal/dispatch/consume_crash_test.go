package dispatch

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
)

// healsWithin is the bound on a stop of consumption after consumers died or stood still. Leases end after 4 s.
const healsWithin = 10 * time.Second

// replica starts a dispatcher of its own process, in the bundle's group, that can be killed and stopped.
func (b *testBundle) replica(consumerGroup string) *exec.Cmd {
	b.t.Helper()
	binary, err := os.Executable()
	require.NoError(b.t, err)
	cmd := exec.Command(binary)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "APIPAY_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, asProcess+"="+consumerGroup, "APIPAY_DATABASE_URL="+b.db.Worker,
		"APIPAY_KAFKA_BROKERS="+strings.Join(b.config.Brokers, ","),
		"APIPAY_SECRETS_KEYSET="+b.config.SecretsKeyset, "APIPAY_WEBHOOK_ALLOW_CIDRS="+b.config.AllowCIDRs)
	require.NoError(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// flow produces one record of each of many tenants, hence on every partition, and tells how long it took until all were there.
type flow struct {
	b       *testBundle
	produce func(...kafka.Message)
	tenants []uuid.UUID
	total   int
}

func newFlow(b *testBundle, produce func(...kafka.Message)) *flow {
	f := &flow{b: b, produce: produce}
	for range 48 {
		f.tenants = append(f.tenants, id.New())
	}
	b.exec(`INSERT INTO apipay.tenants (id, name) SELECT unnest($1::uuid[]), 'merchant'`, f.tenants)
	return f
}

func (f *flow) send() {
	f.b.t.Helper()
	var batch []kafka.Message
	for _, tenant := range f.tenants {
		batch = append(batch, f.b.record(tenant, succeeded, nil))
	}
	f.produce(batch...)
	f.total += len(batch)
}

func (f *flow) there() int {
	f.b.t.Helper()
	return f.b.count(`SELECT count(*) FROM apipay.webhook_events`)
}

// takes sends once more and answers how long it took until everything was there.
func (f *flow) takes() time.Duration {
	f.b.t.Helper()
	f.send()
	started := time.Now()
	f.b.eventually(func() bool { return f.there() == f.total }, "everything arrives")
	return time.Since(started)
}

// A1, E3: however many consumers were killed one after the other, what they held is read again within seconds.
func TestConsume_KilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onBrokers(testdb.Brokers(t))
	f := newFlow(b, produce)
	consumerGroup := newDispatcher().group
	replicas := [2]*exec.Cmd{b.replica(consumerGroup), b.replica(consumerGroup)}
	f.takes()
	for n := range 6 {
		f.send()
		kill(t, replicas[n%2])
		<-time.After(100 * time.Millisecond) // as a supervisor takes
		replicas[n%2] = b.replica(consumerGroup)
		<-time.After(500 * time.Millisecond)
	}
	took := f.takes()
	t.Logf("after the last of 6 kills everything was there within %s", took)
	require.Less(t, took, healsWithin)
	require.Equal(t, f.total, f.there())
}

// B74: a consumer that stands still loses its partitions to the others, and when it goes on it does no harm.
func TestConsume_StandsStill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onBrokers(testdb.Brokers(t))
	f := newFlow(b, produce)
	first := newDispatcher()
	still := b.replica(first.group)
	b.run(first)
	b.eventually(func() bool { return b.holders() == 2 }, "both hold partitions")
	f.takes()
	require.NoError(t, still.Process.Signal(syscall.SIGSTOP))
	stood := f.takes()
	require.Less(t, stood, healsWithin)
	require.NoError(t, still.Process.Signal(syscall.SIGCONT))
	b.eventually(func() bool { return b.holders() == 2 }, "it takes its share again")
	again := f.takes()
	require.Less(t, again, healsWithin)
	t.Logf("everything was there %s after one stood still, and within %s when it went on", stood, again)
}

// holders are the consumers that hold partitions.
func (b *testBundle) holders() int {
	b.t.Helper()
	return b.count(`SELECT count(DISTINCT consumer_id) FROM apipay.webhook_consumer_partitions JOIN apipay.webhook_consumers c ON c.id = consumer_id
		WHERE c.lease_until > now()`)
}

// SIGTERM hands everything over at once, without waiting for a lease to end.
func TestConsume_LeavesCleanly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	newDispatcher, produce := b.onBrokers(testdb.Brokers(t))
	f := newFlow(b, produce)
	stop := b.run(newDispatcher())
	b.run(newDispatcher())
	b.eventually(func() bool { return b.holders() == 2 }, "both hold partitions")
	f.takes()
	stop()
	require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.webhook_consumers`))
	took := f.takes()
	t.Logf("after one left everything was there within %s", took)
	require.Less(t, took, 3*time.Second)
}

func TestShare(t *testing.T) {
	t.Parallel()
	for partitions := 1; partitions <= 64; partitions++ {
		for n := 1; n <= 70; n++ {
			sum := 0
			for rank := range n {
				mine := share(partitions, n, rank)
				require.InDelta(t, float64(partitions)/float64(n), mine, 1)
				sum += mine
			}
			require.Equal(t, partitions, sum)
		}
	}
}
