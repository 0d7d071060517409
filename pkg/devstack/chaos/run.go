package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/devstack/rig"
)

// The relay's programs below the folder of programs.
const (
	relayProgram     = "outbox-relay"
	failpointProgram = "failpoints/outbox-relay"
)

const (
	// batch keeps several batches in flight though the load is small.
	batch = 20
	// inFlight is what one relay may have sent and not yet marked: its workers, the lanes of a turn, their batches. It is the
	// bound for faults whose instant is not known from outside.
	inFlight = 2 * 16 * batch
	// recovery is how long after a fault the oldest event may still be old: a database session of a stopped relay is
	// ended after 15 s.
	recovery = 30 * time.Second
)

// Config is one run.
type Config struct {
	Bin      string
	Apache   bool
	Seed     uint64
	Rounds   int // of kill -9
	Replicas int
	Faults   []string // none: all
	Short    bool     // stops of 1 and 10 s, everything else shortened too
	Pause    time.Duration
	Progress io.Writer
}

// campaign is a run under way.
type campaign struct {
	Config
	rig    *rig.Rig
	db     rig.Database
	world  *world
	reader *reader
	random *rand.Rand
	relays []*rig.Process
	// recorded is what was in flight at the instants of a fault, where it can be counted; nil: by the configuration.
	recorded *int
}

// Outcome is what one fault did.
type Outcome struct {
	Fault      string
	Times      int
	Took       time.Duration
	Recovered  time.Duration
	Duplicates int
	Allowed    int
}

// Result is what a run found.
type Result struct {
	Config
	Began      time.Time
	Took       time.Duration
	Load       [2]string // before and after
	Outcomes   []Outcome
	Events     int
	Records    int
	Unknown    int64 // transactions of writers whose commit was not answered
	Violations map[string]string
}

// Run does every fault to relays under load and asks the oracles. It fails when something could not be done at all; what the
// oracles say is in the result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	result := Result{Config: cfg, Began: time.Now(), Load: [2]string{rig.Load(), ""}}
	chosen, err := choose(cfg.Faults)
	if err != nil {
		return result, err
	}
	r, err := rig.New(ctx, rig.Options{Bin: cfg.Bin, Apache: cfg.Apache, Progress: cfg.Progress})
	if err != nil {
		return result, err
	}
	c := &campaign{Config: cfg, rig: r, random: rand.New(rand.NewPCG(cfg.Seed, 0))} //nolint:gosec // to be repeated by its seed
	defer c.close()
	if c.db, err = r.NewDatabase(ctx); err != nil {
		return result, err
	}
	if c.world, err = newWorld(ctx, c.db, cfg.Seed, cfg.Pause); err != nil {
		return result, err
	}
	c.reader = newReader(r.Brokers)
	if err := c.scale(ctx, cfg.Replicas); err != nil {
		return result, err
	}
	err = c.underLoad(ctx, &result, chosen)
	if err == nil {
		err = c.end(ctx, &result)
	}
	result.Took, result.Load[1] = time.Since(result.Began), rig.Load()
	return result, err
}

func (c *campaign) close() {
	for _, relay := range c.relays {
		relay.Kill()
	}
	if c.world != nil {
		c.world.close()
	}
	c.rig.Close()
}

// underLoad does the faults, one after the other, while the writers write.
func (c *campaign) underLoad(ctx context.Context, result *Result, chosen []fault) error {
	writing, stop := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.world.write(writing)
	}()
	defer func() {
		stop()
		<-written
		result.Unknown = c.world.failed.Load()
	}()
	if _, err := await(ctx, recovery, "events go out", func() (bool, error) {
		oldest, err := c.world.oldestPending(ctx)
		return err == nil && oldest < time.Second && c.world.committed.Load() > 50, err
	}); err != nil {
		return err
	}
	for _, f := range chosen {
		c.recorded = nil
		started, duplicates := time.Now(), c.reader.duplicates
		times, err := f.do(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		took := time.Since(started)
		recovered, err := await(ctx, recovery, "the oldest pending event is younger than 1 s", c.isRecovered(ctx))
		if err != nil {
			return fmt.Errorf("after %s: %w", f.name, err)
		}
		if err := c.catchUp(ctx); err != nil {
			return fmt.Errorf("after %s: %w", f.name, err)
		}
		allowed := times * inFlight
		if c.recorded != nil {
			allowed = *c.recorded
		}
		o := Outcome{f.name, times, took, recovered, c.reader.duplicates - duplicates, allowed}
		result.Outcomes = append(result.Outcomes, o)
		fmt.Fprintf(c.Progress, "%-22s %3d times in %6.1f s, recovered after %6.3f s, %4d duplicates\n",
			o.Fault, o.Times, o.Took.Seconds(), o.Recovered.Seconds(), o.Duplicates)
	}
	return nil
}

// catchUp reads what there is; connections of before a fault may be broken.
func (c *campaign) catchUp(ctx context.Context) error {
	_, err := await(ctx, recovery, "the topics are read", func() (bool, error) {
		err := c.reader.catchUp(ctx)
		return err == nil, err
	})
	return err
}

// end lets everything out and asks the oracles.
func (c *campaign) end(ctx context.Context, result *Result) error {
	if _, err := await(ctx, recovery, "everything went out", func() (bool, error) {
		oldest, err := c.world.oldestPending(ctx)
		return err == nil && oldest == 0, err
	}); err != nil {
		return err
	}
	for _, relay := range c.relays {
		if err := relay.Stop(15 * time.Second); err != nil {
			return err
		}
	}
	const locks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	if _, err := await(ctx, 20*time.Second, "no lane is locked by a session that is gone", func() (bool, error) {
		var held int
		err := c.world.super.QueryRow(ctx, locks).Scan(&held)
		return err == nil && held == 0, err
	}); err != nil {
		return err
	}
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	var err error
	result.Violations, result.Events, err = c.world.judge(ctx, c.reader.records)
	result.Records = len(c.reader.records)
	countDuplicates(result.Outcomes, result.Violations)
	if result.Events == 0 {
		err = errors.Join(err, errors.New("nothing was written"))
	}
	return err
}

// countDuplicates is the part of oracle D that knows the faults.
func countDuplicates(outcomes []Outcome, violations map[string]string) {
	for _, o := range outcomes {
		if o.Duplicates > o.Allowed && violations["D"] == "" {
			violations["D"] = fmt.Sprintf("%d duplicates by %s, at most %d were in flight", o.Duplicates, o.Fault, o.Allowed)
		}
	}
}

func (c *campaign) isRecovered(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		oldest, err := c.world.oldestPending(ctx)
		return err == nil && oldest < time.Second, err
	}
}

// scale starts or stops relays until there are n.
func (c *campaign) scale(ctx context.Context, n int) error {
	for len(c.relays) < n {
		relay := c.rig.Relay(c.db, relayProgram, c.environment()...)
		if err := relay.Start(ctx); err != nil {
			return err
		}
		c.relays = append(c.relays, relay)
	}
	for len(c.relays) > n {
		last := len(c.relays) - 1
		if err := c.relays[last].Stop(15 * time.Second); err != nil {
			return err
		}
		c.relays = c.relays[:last]
	}
	return nil
}

func (c *campaign) environment() []string {
	return []string{fmt.Sprintf("APIPAY_OUTBOX_BATCH=%d", batch)}
}

// newObject is one that no writer changes.
func (c *campaign) newObject(ctx context.Context) uuid.UUID {
	object := uuid.New()
	// A failure shows at the update of the object.
	_, _ = c.world.super.Exec(ctx, `INSERT INTO public.objects VALUES ($1, 0)`, object)
	return object
}
