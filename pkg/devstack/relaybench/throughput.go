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
	"syscall"
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

// speed is a rate, and what it cost: CPU time is told too, since it depends little on what else the machine does.
type speed struct {
	rate float64
	// cpu per event in microseconds: everybody's, and that of the relay alone.
	cpu, relay float64
}

// onTwoCores is the rate at which two cores with nothing else to do are busy.
func (s speed) onTwoCores() float64 { return 2e6 / s.cpu }

// drain empties a backlog with one replica.
func drain(ctx context.Context, b *bench) ([]Figure, error) {
	s, err := b.drainSpeed(ctx, b.scaled(backlogEvents))
	figures := []Figure{
		{What: "backlog drain per replica, 500 B", Target: ">= 40,000/s", Unit: "events/s", Meets: atLeast(40_000), Value: s.rate},
		{What: "the same by CPU time: what two free cores give", Target: ">= 40,000/s", Unit: "events/s", Meets: atLeast(40_000), Value: s.onTwoCores()},
		{What: "CPU per event: relay, Postgres and broker", Target: "-", Unit: "us", Value: s.cpu},
		{What: "CPU per event: relay", Target: "-", Unit: "us", Value: s.relay},
	}
	if b.Apache {
		for i := range figures {
			figures[i].Target, figures[i].Meets = "see the ratio", nil
		}
	}
	return figures, err
}

func (b *bench) drainSpeed(ctx context.Context, count int) (s speed, err error) {
	p := newPeople(tenants)
	prepare := func(t *table) error {
		return errors.Join(t.fill(ctx, p, count, payloadBytes, false), t.analyze(ctx))
	}
	err = b.each(ctx, 0, prepare, func(t *table, _ []*rig.Process) error {
		// What the checkpoint of the filling costs is not the relay's.
		if _, err := t.super.Exec(ctx, "CHECKPOINT"); err != nil {
			return err
		}
		before, err := b.cpu()
		if err != nil {
			return err
		}
		return b.relayed(ctx, t, 1, func(relays []*rig.Process) error {
			if err := t.drained(ctx, drainLimit); err != nil {
				return err
			}
			after, err := b.cpu()
			relay, _, relayErr := relays[0].CPU()
			if err := errors.Join(err, relayErr); err != nil {
				return err
			}
			perEvent := float64(count) / 1e6
			s.relay = relay.Seconds() / perEvent
			s.cpu = s.relay + (after-before).Seconds()/perEvent
			s.rate, _, _, err = t.rates(ctx, p)
			return err
		})
	})
	return s, err
}

// cpu is what Postgres and the broker have used.
func (b *bench) cpu() (time.Duration, error) {
	postgres, err := b.rig.Postgres.TreeCPU()
	if err != nil {
		return 0, err
	}
	broker, err := b.rig.Broker.TreeCPU()
	return postgres + broker, err
}

// ratio is the drain against kafka-go alone, which sends the same payloads in the same batches, as many at once as a replica
// does, right before it.
func ratio(ctx context.Context, b *bench) ([]Figure, error) {
	raw, err := b.rawSpeed(ctx, b.scaled(backlogEvents))
	if err != nil {
		return nil, err
	}
	s, err := b.drainSpeed(ctx, b.scaled(backlogEvents))
	figures := []Figure{
		{What: "drain as a ratio to raw kafka-go, same run", Target: ">= 0.3 on Apache Kafka", Value: s.rate / raw.rate, Meets: atLeast(0.3)},
		{What: "the same by CPU time", Target: ">= 0.3 on Apache Kafka", Value: raw.cpu / s.cpu, Meets: atLeast(0.3)},
		{What: "raw kafka-go", Target: "-", Unit: "events/s", Value: raw.rate},
		{What: "raw kafka-go: CPU per event", Target: "-", Unit: "us", Value: raw.cpu},
	}
	if !b.Apache {
		figures[0].Meets, figures[1].Meets = nil, nil
	}
	return figures, err
}

func (b *bench) rawSpeed(ctx context.Context, count int) (speed, error) {
	broker, err := b.rig.Broker.TreeCPU()
	if err != nil {
		return speed{}, err
	}
	own := ownCPU()
	rate, err := b.rawRate(ctx, count)
	if err != nil {
		return speed{}, err
	}
	after, err := b.rig.Broker.TreeCPU()
	used := after - broker + ownCPU() - own
	return speed{rate: rate, cpu: used.Seconds() * 1e6 / float64(count)}, err
}

func ownCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail for oneself
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// rawRate produces with kafka-go's Client: batches of 500, acks from all in-sync replicas, 8 at once.
func (b *bench) rawRate(ctx context.Context, count int) (float64, error) {
	transport := &kafka.Transport{MetadataTopics: []string{topic}}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(b.rig.Brokers), Transport: transport}
	value := []byte(strings.Repeat("z", payloadBytes))
	p := newPeople(tenants)
	if err := b.warmUp(ctx, &client); err != nil {
		return 0, err
	}
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

// warmUp sends one record to each partition: topics that were just made have leaders a moment later.
func (b *bench) warmUp(ctx context.Context, client *kafka.Client) error {
	for partition := range partitions {
		for attempt := 1; ; attempt++ {
			response, err := client.Produce(ctx, &kafka.ProduceRequest{
				Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte("{}"))}),
			})
			if err == nil {
				err = response.Error
			}
			if err == nil {
				break
			}
			if attempt == 50 || !rig.Sleep(ctx, 200*time.Millisecond) {
				return fmt.Errorf("partition %d: %w", partition, err)
			}
		}
	}
	return nil
}

// live inserts at a rate above the target and sees whether the backlog grows.
func live(ctx context.Context, b *bench) ([]Figure, error) {
	const asked = 3000
	p := newPeople(tenants)
	var rate, oldest float64
	err := b.each(ctx, 1, nil, func(t *table, _ []*rig.Process) error {
		d := b.scaledTime(20 * time.Second)
		inserted, err := t.live(ctx, p, asked, d)
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
		if err := errors.Join(t.fill(ctx, p, count, payloadBytes, false), t.analyze(ctx)); err != nil {
			return err
		}
		// What the checkpoint of the filling costs is not the relay's.
		_, err := t.super.Exec(ctx, "CHECKPOINT")
		return err
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
