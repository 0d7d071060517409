package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/webhook-dispatcher/internal/post"
)

const (
	// slots are the deliveries that one process may have in hand, from claim to record.
	slots = 512
	// MaxConns of the database that a dispatcher uses: one per loop, and spare ones.
	MaxConns = 14
	// finishTimeout is how long attempts in flight may end by themselves after SIGTERM, a little more than an attempt's default
	// limit; the rest are given back.
	finishTimeout = 10500 * time.Millisecond
	// recordTimeout is when, after SIGTERM, recording the last results is given up: their leases then end by themselves.
	recordTimeout = 13 * time.Second
)

// Needs are the privileges that are checked at start.
var Needs = append([]postgres.Need{
	{Table: "tenants", Verbs: []postgres.Verb{postgres.Select}},
	{Table: "webhook_endpoints", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock}, Columns: []string{"status", "disabled_reason", "version", "updated_at"}},
	{Table: "webhook_endpoint_secrets", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock, postgres.Delete}, Columns: []string{"ciphertext", "key_id"}},
	{Table: "webhook_endpoint_states", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock}},
	{Table: "webhook_endpoint_health", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update}, Columns: []string{"succeeded", "failed", "latency_buckets", "failures"}},
	{Table: "webhook_events", Verbs: []postgres.Verb{postgres.Select, postgres.Insert}},
	{Table: "outbound_webhook_deliveries", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock}, Columns: []string{
		"status", "priority", "trigger", "attempt_count", "next_attempt_at", "lease_token", "lease_until", "lost_leases",
		"delivered_at", "failed_at", "failure_reason", "updated_at", "due_since", "recovery_id"}},
	{Table: "recoveries", Verbs: []postgres.Verb{postgres.Select, postgres.Update, postgres.Lock}, Columns: []string{
		"status", "matched", "queued", "cursor_event", "cursor_endpoint", "finished_at"}},
	{Table: "outbound_webhook_attempts", Verbs: []postgres.Verb{postgres.Select, postgres.Insert}},
	{Table: "quarantined_records", Verbs: []postgres.Verb{postgres.Select, postgres.Insert, postgres.Update, postgres.Lock}, Columns: []string{"replay_requested_at", "last_replay_at", "replayed_at", "reason", "detail"}},
	{Table: "outbox_events", Verbs: []postgres.Verb{postgres.Insert}},
	{Table: "audit_log", Verbs: []postgres.Verb{postgres.Insert}},
}, consumerNeeds...)

// Dispatcher turns events of the topic into signed HTTP attempts.
type Dispatcher struct {
	config  Config
	group   string
	pool    *pgxpool.Pool
	keys    *keyring
	client  *post.Client
	health  *ops.Health
	log     *slog.Logger
	metrics *metrics
	// clock measures how long things take here. Due times, leases and signatures are by the database's: a clock that is
	// wrong changes nothing of them.
	clock func() time.Time

	work    *worklist
	secrets secretCache
	// tenants that were seen: they are never deleted.
	tenants   sync.Map
	weekClock atomic.Pointer[databaseClock]
	// stated are endpoints whose row in webhook_endpoint_states exists.
	stated sync.Map

	// walk is where the discovery stands; its loop alone uses it.
	walk      cursor
	ailing    ailments
	resealing resealing

	// results are of attempts that ended; others those that a turn does not record.
	results, others chan attempt
	sending         sync.WaitGroup
	// inFlight are attempts that have not ended.
	inFlight atomic.Int64
	// finishTimeout is the constant, but for tests.
	finishTimeout time.Duration
	// recordFails stops the claims while results cannot be recorded: what is sent then would be sent again.
	recordFails atomic.Bool
}

// New makes a dispatcher from a validated configuration.
func New(config Config, pool *pgxpool.Pool, health *ops.Health, log *slog.Logger) (*Dispatcher, error) {
	policy, err := webhook.ParsePolicy(config.AllowCIDRs)
	if err != nil {
		return nil, fmt.Errorf("reading APIPAY_WEBHOOK_ALLOW_CIDRS: %w", err)
	}
	keys, err := newKeyring(config.SecretsKeyset, config.SecretsKeysetFile)
	if err != nil {
		return nil, err
	}
	proxy, err := config.proxy()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		config: config, group: group, pool: pool, keys: keys, health: health, log: log, clock: time.Now,
		resealing: resealing{delay: resealDelay},
		client:    post.New(post.Config{Policy: policy, Timeout: config.Timeout, DNS: config.DNS, Proxy: proxy}),
		work:      newWorklist(config.EndpointConcurrency, slots),
		results:   make(chan attempt, slots),
		others:    make(chan attempt, 2*slots),

		finishTimeout: finishTimeout,
	}
	d.metrics, err = newMetrics(d)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Run works until ctx ends, then finishes or gives back what it has in hand, within about 13 seconds.
func (d *Dispatcher) Run(ctx context.Context) error {
	if err := d.warm(ctx); err != nil {
		d.log.WarnContext(ctx, "dispatcher.warming", "error", err.Error())
	}
	detached := context.WithoutCancel(ctx)
	sendCtx, cutOff := context.WithCancel(detached)
	defer cutOff()
	recordCtx, giveUp := context.WithCancel(detached)
	defer giveUp()
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		d.record(recordCtx)
	}()
	// The limits count from the moment the loops are told to stop, not from when the last of them did.
	var limits []*time.Timer
	err := ops.Group(ctx,
		func(ctx context.Context) error {
			<-ctx.Done()
			limits = append(limits, time.AfterFunc(d.finishTimeout, cutOff), time.AfterFunc(recordTimeout, giveUp))
			return ctx.Err()
		},
		d.consume,
		func(ctx context.Context) error { return d.claimLoop(ctx, sendCtx) },
		d.every("discover", discoverInterval, d.discover),
		d.every("rescue", rescueInterval, d.rescue),
		d.every("sweep", sweepInterval, d.sweep),
		d.every("replay", replayInterval, d.replay),
		d.every("recover", recoverInterval, d.recover),
		d.every("retention", retentionInterval, d.dropOld),
		d.every("reseal", resealInterval, d.reseal),
		d.every("probe", probeInterval, d.probe),
	)
	d.sending.Wait()
	close(d.results)
	<-recorded
	for _, limit := range limits {
		limit.Stop()
	}
	d.client.Close()
	return err
}

// every turns work into a loop that heals by itself: a turn that fails is told, at most once a second, and tried again.
// A turn answers how soon the next one is due; 0 is the interval.
func (d *Dispatcher) every(name string, interval time.Duration, turn func(context.Context) (time.Duration, error)) func(context.Context) error {
	loop := d.health.Loop(name, max(time.Minute, 2*interval))
	return func(ctx context.Context) error {
		told := newTeller(d.log, name)
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-timer.C:
			}
			loop.Tick()
			turnCtx, cancel := context.WithTimeout(ctx, turnTimeout)
			next, err := turn(turnCtx)
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if next == 0 {
				next = interval
			}
			if told.tell(ctx, err) {
				next = max(next, time.Second)
				loop.Degraded(err.Error())
			} else {
				loop.Degraded("")
			}
			timer.Reset(next)
		}
	}
}

const turnTimeout = 30 * time.Second

// teller writes at most one line a second about a loop's errors, and one when they end.
type teller struct {
	log    *slog.Logger
	loop   string
	last   time.Time
	failed bool
}

func newTeller(log *slog.Logger, loop string) *teller { return &teller{log: log, loop: loop} }

// tell reports whether err is one.
func (t *teller) tell(ctx context.Context, err error) bool {
	if err == nil {
		if t.failed {
			t.failed = false
			t.log.InfoContext(ctx, "loop.healed", "loop", t.loop)
		}
		return false
	}
	t.failed = true
	if time.Since(t.last) >= time.Second {
		t.last = time.Now()
		t.log.ErrorContext(ctx, "loop.failed", "loop", t.loop, "error", err.Error())
	}
	return true
}

const probeInterval = time.Second

func (d *Dispatcher) probe(ctx context.Context) (time.Duration, error) {
	d.client.Probe(ctx)
	if reason := d.client.Degraded(); reason != "" {
		return 0, fmt.Errorf("sending stands still: %s", reason)
	}
	return 0, nil
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	return err == nil && host != "" && port != ""
}

// pause waits, and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
