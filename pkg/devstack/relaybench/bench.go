// Package relaybench measures the relay, as a process of its own beside Postgres and a broker, against the figures of its
// acceptance cases.
package relaybench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/devstack/rig"
)

const (
	topic   = "apipay.outbound-webhooks.v1"
	lanes   = 64
	tenants = 200
)

// Config is one run.
type Config struct {
	Bin      string
	Apache   bool
	Runs     int // of each row; the median is told
	Rows     []string
	Scale    float64 // of backlogs and times; 1 is what the acceptance cases say
	Progress io.Writer
}

// Figure is one measured value of a row.
type Figure struct {
	What   string
	Target string
	Unit   string
	// Meets tells whether a value is good enough; nil: there is no target.
	Meets func(float64) bool
	Value float64
}

func atMost(limit float64) func(float64) bool  { return func(v float64) bool { return v <= limit } }
func atLeast(limit float64) func(float64) bool { return func(v float64) bool { return v >= limit } }

// row is one line of the acceptance cases.
type row struct {
	name    string
	measure func(ctx context.Context, b *bench) ([]Figure, error)
	once    bool // long: it is measured once
	// embeddedOnly rows say nothing about the broker.
	embeddedOnly bool
}

var rows = []row{
	{name: "drain", measure: drain},
	{name: "ratio", measure: ratio},
	{name: "live", measure: live},
	{name: "latency", measure: latency},
	{name: "idle-first", measure: firstAfterIdle, once: true, embeddedOnly: true},
	{name: "million", measure: million, once: true},
	{name: "retained", measure: retained, once: true, embeddedOnly: true},
	{name: "snapshot", measure: heldSnapshot, once: true, embeddedOnly: true},
	{name: "insert-cost", measure: insertCost, embeddedOnly: true},
	{name: "idle", measure: idle, embeddedOnly: true},
	{name: "failover", measure: failover, once: true, embeddedOnly: true},
	{name: "outage", measure: outage, once: true, embeddedOnly: true},
}

// Names are those of all rows.
func Names() []string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return names
}

// bench is what a row measures with.
type bench struct {
	Config
	rig *rig.Rig
}

// Run measures the rows and writes each as it comes, as a line of a Markdown table. What misses its target is told, and is no
// error.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	r, err := rig.New(ctx, rig.Options{Bin: cfg.Bin, Apache: cfg.Apache, MemoryOnly: true, NoProxy: true, Progress: cfg.Progress})
	if err != nil {
		return err
	}
	defer r.Close()
	b := &bench{Config: cfg, rig: r}
	broker := "embedded broker, in memory"
	if cfg.Apache {
		broker = "Apache Kafka (KRaft, one node)"
	}
	fmt.Fprintf(out, "\n## %s\n\n%s; scale %g.\n\n", broker, time.Now().UTC().Format(time.DateTime), cfg.Scale)
	fmt.Fprintf(out, "| What | Target | Measured | | Runs | Load average before, after |\n|---|---|---|---|---|---|\n")
	for _, row := range rows {
		if len(cfg.Rows) > 0 && !slices.Contains(cfg.Rows, row.name) || cfg.Apache && row.embeddedOnly {
			continue
		}
		if err := b.tell(ctx, row, out); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	return nil
}

func (b *bench) tell(ctx context.Context, row row, out io.Writer) error {
	runs := b.Runs
	if row.once {
		runs = 1
	}
	before := rig.Load()
	var all [][]Figure
	for n := range runs {
		figures, err := row.measure(ctx, b)
		if err != nil {
			return err
		}
		for _, f := range figures {
			fmt.Fprintf(b.Progress, "raw: %s, run %d: %s: %.3f %s (load %s)\n", row.name, n+1, f.What, f.Value, f.Unit, rig.Load())
		}
		all = append(all, figures)
	}
	for i, f := range all[0] {
		values := make([]float64, len(all))
		for n := range all {
			values[n] = all[n][i].Value
		}
		slices.Sort(values)
		median := values[len(values)/2]
		verdict := ""
		if f.Meets != nil {
			verdict = "met"
			if !f.Meets(median) {
				verdict = "**missed**"
			}
		}
		fmt.Fprintf(out, "| %s | %s | %s %s | %s | %s | %s, %s |\n", f.What, f.Target, number(median), f.Unit, verdict, list(values), before, rig.Load())
	}
	return nil
}

func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func list(values []float64) string {
	text := ""
	for i, v := range values {
		if i > 0 {
			text += ", "
		}
		text += number(v)
	}
	return text
}

// scaled is a count or a time of the acceptance cases in this run's scale.
func (b *bench) scaled(n int) int { return max(1, int(float64(n)*b.Scale)) }

func (b *bench) scaledTime(d time.Duration) time.Duration { return time.Duration(float64(d) * b.Scale) }

// table is a fresh database.
type table struct {
	rig.Database
	owner *pgxpool.Pool
	super *pgxpool.Pool
}

func (b *bench) newTable(ctx context.Context) (*table, error) {
	db, err := b.rig.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	t := &table{Database: db}
	owner, err := pgxpool.ParseConfig(db.Owner)
	if err != nil {
		return nil, err
	}
	owner.MaxConns = liveSessions + 2
	if t.owner, err = pgxpool.NewWithConfig(ctx, owner); err != nil {
		return nil, err
	}
	if t.super, err = pgxpool.New(ctx, db.Super); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *table) close() {
	t.owner.Close()
	t.super.Close()
}

// names of tenants with their lanes.
type people struct {
	ids   []uuid.UUID
	lanes []int16
}

func newPeople(n int) people {
	all := make([]int, lanes)
	for i := range all {
		all[i] = i
	}
	p := people{}
	for range n {
		tenant := uuid.New()
		p.ids = append(p.ids, tenant)
		p.lanes = append(p.lanes, int16(kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: []byte(tenant.String())}, all...))) //nolint:gosec // below 64
	}
	return p
}

// fill inserts count events of size bytes in the tenants' turn; the payload begins with the event's number. They are pending,
// or published already. Their ids rise with time, as those of events that came one by one: ids of one instant would be spread
// over the whole of each index.
func (t *table) fill(ctx context.Context, p people, count, size int, published bool) error {
	const query = `
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, published_at)
		SELECT overlay(overlay((apipay.uuid7_floor(now() - ($9::int - i) * interval '0.1 ms')::text) PLACING '7' FROM 15) PLACING substr(gen_random_uuid()::text, 16) FROM 16)::uuid,
		       ($1::uuid[])[1 + i % $3], false, $4, ($2::int2[])[1 + i % $3], 'ping', convert_to(rpad(i::text || ' ', $7, 'z'), 'UTF8'),
		       CASE WHEN $8 THEN now() END
		FROM generate_series($5::int, $6::int) i`
	const slice = 100_000
	for n := 0; n < count; n += slice {
		if _, err := t.owner.Exec(ctx, query, p.ids, p.lanes, len(p.ids), topic, n, min(n+slice, count)-1, size, published, count); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) analyze(ctx context.Context) error {
	_, err := t.owner.Exec(ctx, "ANALYZE apipay.outbox_events")
	return err
}

// drained waits until nothing is pending.
func (t *table) drained(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	const query = `SELECT EXISTS (SELECT FROM apipay.outbox_events WHERE published_at IS NULL AND parked_at IS NULL)`
	for pending := true; pending; {
		err := pgx.BeginFunc(ctx, t.super, func(tx pgx.Tx) error {
			// By the index of pending events: a scan of the table would cost more than what is measured.
			if _, err := tx.Exec(ctx, "SET LOCAL enable_seqscan = off"); err != nil {
				return err
			}
			return tx.QueryRow(ctx, query).Scan(&pending)
		})
		if err != nil {
			return err
		}
		if pending && !rig.Sleep(ctx, 200*time.Millisecond) {
			return errors.New("the outbox does not drain")
		}
	}
	return nil
}

// rates are events per second between the first mark and the last, of all, of the first and of the last tenth.
func (t *table) rates(ctx context.Context, p people) (all, first, last float64, err error) {
	// The first turn has no beginning in the table, so its rows do not count.
	const query = `
		SELECT count(*) FILTER (WHERE published_at > began), extract(epoch FROM max(published_at) - min(began)),
		       extract(epoch FROM (SELECT percentile_disc(0.1) WITHIN GROUP (ORDER BY published_at) FROM apipay.outbox_events WHERE tenant_id = ANY ($1)) - min(began)),
		       extract(epoch FROM max(published_at) - (SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY published_at) FROM apipay.outbox_events WHERE tenant_id = ANY ($1)))
		FROM apipay.outbox_events, (SELECT min(published_at) AS began FROM apipay.outbox_events WHERE tenant_id = ANY ($1)) b
		WHERE tenant_id = ANY ($1)`
	var count, took, firstTook, lastTook float64
	if err := t.super.QueryRow(ctx, query, p.ids).Scan(&count, &took, &firstTook, &lastTook); err != nil {
		return 0, 0, 0, err
	}
	return count / took, 0.1 * count / firstTook, 0.1 * count / lastTook, nil
}

// relayed runs relays on a table while do lasts.
func (b *bench) relayed(ctx context.Context, t *table, n int, do func(relays []*rig.Process) error) error {
	var relays []*rig.Process
	for range n {
		relay := b.rig.Relay(t.Database, "outbox-relay")
		if err := relay.Start(ctx); err != nil {
			return err
		}
		defer relay.Kill()
		relays = append(relays, relay)
	}
	return do(relays)
}

// each gives do a fresh table with relays on it.
func (b *bench) each(ctx context.Context, relays int, prepare func(*table) error, do func(*table, []*rig.Process) error) error {
	t, err := b.newTable(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	if prepare != nil {
		if err := prepare(t); err != nil {
			return err
		}
	}
	return b.relayed(ctx, t, relays, func(relays []*rig.Process) error { return do(t, relays) })
}

// liveSessions insert the events that come one by one.
const liveSessions = 8

// live inserts one event of 300 bytes per transaction at a rate, by several sessions, for a time.
func (t *table) live(ctx context.Context, p people, rate float64, d time.Duration) (inserted int, err error) {
	const sessions = liveSessions
	const query = `
		INSERT INTO apipay.outbox_events (id, tenant_id, livemode, topic, lane, type, payload, created_at)
		VALUES ($1, $2, false, $3, $4, 'ping', $5, clock_timestamp())`
	payload := make([]byte, liveBytes)
	counts, errs := make([]int, sessions), make(chan error, sessions)
	began := time.Now()
	for s := range sessions {
		go func() {
			errs <- t.owner.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
				for n := 0; ; n++ {
					due := time.Duration(float64(n*sessions+s) / rate * float64(time.Second))
					if due > d || ctx.Err() != nil {
						counts[s] = n
						return ctx.Err()
					}
					if wait := due - time.Since(began); wait > 0 {
						time.Sleep(wait)
					} else if time.Since(began) > d {
						counts[s] = n
						return nil
					}
					i := (n*sessions + s) % len(p.ids)
					if _, err := conn.Exec(ctx, query, uuid.Must(uuid.NewV7()), p.ids[i], topic, p.lanes[i], payload); err != nil {
						return err
					}
				}
			})
		}()
	}
	for range sessions {
		err = errors.Join(err, <-errs)
	}
	for _, n := range counts {
		inserted += n
	}
	return inserted, err
}

// percentiles of the time from insert to mark, in milliseconds.
func (t *table) percentiles(ctx context.Context, p people) (p50, p99 float64, err error) {
	const query = `
		SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY 1000 * extract(epoch FROM published_at - created_at))
		FROM apipay.outbox_events WHERE tenant_id = ANY ($1)`
	var values []float64
	if err := t.super.QueryRow(ctx, query, p.ids).Scan(&values); err != nil {
		return 0, 0, err
	}
	return values[0], values[1], nil
}
