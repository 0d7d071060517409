package relaybench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/devstack/rig"
)

const (
	backlogEvents = 300_000
	payloadBytes  = 500
	liveBytes     = 300
	batchEvents   = 500
	partitions    = 16
	drainLimit    = 3 * time.Minute
)

// drain empties a backlog with one replica.
func drain(ctx context.Context, b *bench) ([]Figure, error) {
	rate, err := b.drainRate(ctx, b.scaled(backlogEvents))
	f := Figure{What: "backlog drain per replica, 500 B", Target: ">= 40,000/s", Unit: "events/s", Meets: atLeast(40_000), Value: rate}
	if b.Apache {
		f.Target, f.Meets = "see the ratio", nil
	}
	return []Figure{f}, err
}

func (b *bench) drainRate(ctx context.Context, count int) (rate float64, err error) {
	p := newPeople(tenants)
	prepare := func(t *table) error {
		return errors.Join(t.fill(ctx, p, 0, count, payloadBytes, false), t.analyze(ctx))
	}
	err = b.each(ctx, 1, prepare, func(t *table, _ []*rig.Process) error {
		if err := t.drained(ctx, drainLimit); err != nil {
			return err
		}
		rate, _, _, err = t.rates(ctx, p)
		return err
	})
	return rate, err
}

// ratio is the drain against kafka-go alone, which sends the same payloads in the same batches, as many at once as a replica
// does, right before it.
func ratio(ctx context.Context, b *bench) ([]Figure, error) {
	raw, err := b.rawRate(ctx, b.scaled(backlogEvents))
	if err != nil {
		return nil, err
	}
	rate, err := b.drainRate(ctx, b.scaled(backlogEvents))
	f := Figure{What: "drain as a ratio to raw kafka-go, same run", Target: ">= 0.3 on Apache Kafka", Value: rate / raw, Meets: atLeast(0.3)}
	if !b.Apache {
		f.Meets = nil
	}
	return []Figure{f, {What: "raw kafka-go", Target: "-", Unit: "events/s", Value: raw}}, err
}

// rawRate produces with kafka-go's Client: batches of 500, acks from all in-sync replicas, 8 at once.
func (b *bench) rawRate(ctx context.Context, count int) (float64, error) {
	transport := &kafka.Transport{MetadataTopics: []string{topic}}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(b.rig.Brokers), Transport: transport}
	value := []byte(strings.Repeat("z", payloadBytes))
	p := newPeople(tenants)
	var next atomic.Int64
	const atOnce = 8
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	began := time.Now()
	for n := range atOnce {
		wg.Go(func() {
			for errs[n] == nil {
				i := int(next.Add(1)) - 1
				if i*batchEvents >= count {
					return
				}
				records := make([]kafka.Record, batchEvents)
				for j := range records {
					key := p.ids[(i+j)%tenants].String()
					records[j] = kafka.Record{Key: kafka.NewBytes([]byte(key)), Value: kafka.NewBytes(value), Headers: []kafka.Header{
						{Key: "event-id", Value: []byte("evt_01h455vb4pex5vsknk084sn02q")}, {Key: "event-type", Value: []byte("ping")},
						{Key: "content-type", Value: []byte("application/json")},
					}}
				}
				response, err := client.Produce(ctx, &kafka.ProduceRequest{
					Topic: topic, Partition: i % partitions, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
				})
				if err == nil {
					err = response.Error
				}
				errs[n] = err
			}
		})
	}
	wg.Wait()
	return float64(count) / time.Since(began).Seconds(), errors.Join(errs...)
}

// live is the highest of some rates at which the backlog does not grow.
func live(ctx context.Context, b *bench) ([]Figure, error) {
	const asked = 3000
	p := newPeople(tenants)
	var rate, oldest float64
	err := b.each(ctx, 1, nil, func(t *table, _ []*rig.Process) error {
		d := b.scaledTime(20 * time.Second)
		inserted, err := t.live(ctx, p, asked, liveBytes, d)
		if err != nil {
			return err
		}
		rate = float64(inserted) / d.Seconds()
		const query = `
			SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
			FROM apipay.outbox_events WHERE published_at IS NULL`
		if err := t.super.QueryRow(ctx, query).Scan(&oldest); err != nil {
			return err
		}
		return t.drained(ctx, drainLimit)
	})
	return []Figure{
		{What: fmt.Sprintf("live rate, 300 B (%d/s asked of %d writers)", asked, liveSessions), Target: ">= 2,500/s", Unit: "events/s", Meets: atLeast(2500), Value: rate},
		{What: "oldest pending at its end: the backlog did not grow", Target: "<= 1 s", Unit: "s", Meets: atMost(1), Value: oldest},
	}, err
}

// million drains 1 M events and reads them all: none lost, none twice, each tenant's in order.
func million(ctx context.Context, b *bench) ([]Figure, error) {
	count := b.scaled(1_000_000)
	p := newPeople(tenants)
	var rate, first, last float64
	var lost, duplicates, inversions int
	prepare := func(t *table) error {
		return errors.Join(t.fill(ctx, p, 0, count, payloadBytes, false), t.analyze(ctx))
	}
	err := b.each(ctx, 1, prepare, func(t *table, _ []*rig.Process) error {
		if err := t.drained(ctx, 2*drainLimit); err != nil {
			return err
		}
		var err error
		if rate, first, last, err = t.rates(ctx, p); err != nil {
			return err
		}
		lost, duplicates, inversions, err = b.read(ctx, p, count)
		return err
	})
	name := strconv.Itoa(count) + " backlog"
	figures := []Figure{
		{What: name + ", one replica", Target: ">= 30,000/s", Unit: "events/s", Meets: atLeast(30_000), Value: rate},
		{What: name + ": last tenth to first", Target: ">= 0.9", Meets: atLeast(0.9), Value: last / first},
		{What: name + ": lost", Target: "0", Unit: "events", Meets: atMost(0), Value: float64(lost)},
		{What: name + ": duplicates", Target: "0", Unit: "events", Meets: atMost(0), Value: float64(duplicates)},
		{What: name + ": inversions", Target: "0", Unit: "events", Meets: atMost(0), Value: float64(inversions)},
	}
	if b.Apache {
		figures[0].Target, figures[0].Meets = "-", nil
	}
	return figures, err
}

// read takes every partition from its beginning and counts what is missing, twice or out of order of fill's numbers.
func (b *bench) read(ctx context.Context, p people, count int) (lost, duplicates, inversions int, err error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(b.rig.Brokers), Transport: transport}
	mine := map[string]int{}
	for _, tenant := range p.ids {
		mine[tenant.String()] = -1
	}
	seen := make([]bool, count)
	for partition := range partitions {
		for next, end := int64(0), int64(1); next < end; {
			response, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, Partition: partition, Offset: next, MaxBytes: 20 << 20, MaxWait: 10 * time.Millisecond})
			if err == nil {
				err = response.Error
			}
			if err != nil {
				return 0, 0, 0, err
			}
			end = response.HighWatermark
			for {
				record, err := response.Records.ReadRecord()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return 0, 0, 0, err
				}
				key, keyErr := kafka.ReadAll(record.Key)
				value, valueErr := kafka.ReadAll(record.Value)
				if err := errors.Join(keyErr, valueErr); err != nil {
					return 0, 0, 0, err
				}
				if record.Offset < next {
					continue
				}
				next = record.Offset + 1
				before, ok := mine[string(key)]
				if !ok {
					continue // of another row
				}
				digits, _, _ := strings.Cut(string(value), " ")
				number, err := strconv.Atoi(digits)
				if err != nil {
					return 0, 0, 0, err
				}
				switch {
				case seen[number]:
					duplicates++
				case number < before:
					inversions++
				}
				seen[number] = true
				mine[string(key)] = max(before, number)
			}
		}
	}
	for _, there := range seen {
		if !there {
			lost++
		}
	}
	return lost, duplicates, inversions, nil
}
