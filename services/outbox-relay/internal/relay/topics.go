package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/kafkaconn"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/proto/events"
)

const (
	clientID         = "outbox-relay"
	probeTimeout     = 3 * time.Second
	minProbeDelay    = 100 * time.Millisecond
	maxProbeDelay    = time.Second
	refreshInterval  = 5 * time.Second
	blockedInterval  = 500 * time.Millisecond
	newPartitions    = 16
	defaultReplicas  = -1 // the broker's default
	dataMetadataTTL  = 5 * time.Second
	probeMetadataTTL = probeTimeout
)

// topics is what the cluster looks like. It keeps two connections' worth of state apart: probes ask on a
// fresh connection each time, because the client serves metadata from a cache that it renews by itself, and
// keeps through an outage; produces go through a pool that is dropped when leaders have moved.
type topics struct {
	data  *kafka.Transport
	probe *kafka.Transport
	addr  kafkaconn.Config

	mu     sync.RWMutex
	counts map[string]int32
}

func newTopics(config kafkaconn.Config) (*topics, error) {
	data, err := config.Transport(clientID, dataMetadataTTL)
	if err != nil {
		return nil, err
	}
	probe, err := config.Transport(clientID, probeMetadataTTL)
	if err != nil {
		return nil, err
	}
	// Not the whole cluster's: it may hold thousands of other topics.
	data.MetadataTopics, probe.MetadataTopics = events.Topics(), events.Topics()
	return &topics{data: data, probe: probe, addr: config, counts: map[string]int32{}}, nil
}

func (t *topics) client() *kafka.Client {
	return &kafka.Client{Addr: t.addr.Addr(), Transport: t.data}
}

// partitions is the topic's partition count, 0 while it is not known.
func (t *topics) partitions(topic string) int32 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.counts[topic]
}

// forget drops the pool of produce connections, and with it what it believes of leaders. Requests under way
// finish.
func (t *topics) forget() { t.data.CloseIdleConnections() }

func (t *topics) close() {
	t.data.CloseIdleConnections()
	t.probe.CloseIdleConnections()
}

// look asks the cluster for the three topics.
func (t *topics) look(ctx context.Context) (map[string]kafka.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	t.probe.CloseIdleConnections()
	client := kafka.Client{Addr: t.addr.Addr(), Transport: t.probe}
	response, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: events.Topics()})
	if err != nil {
		return nil, fmt.Errorf("asking the brokers for the topics: %w", err)
	}
	found := make(map[string]kafka.Topic, len(response.Topics))
	for _, topic := range response.Topics {
		found[topic.Name] = topic
	}
	return found, nil
}

// create makes the topics that are missing.
func (t *topics) create(ctx context.Context, missing []string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request := kafka.CreateTopicsRequest{}
	for _, topic := range missing {
		request.Topics = append(request.Topics, kafka.TopicConfig{Topic: topic, NumPartitions: newPartitions, ReplicationFactor: defaultReplicas})
	}
	client := kafka.Client{Addr: t.addr.Addr(), Transport: t.probe}
	response, err := client.CreateTopics(ctx, &request)
	if err != nil {
		return fmt.Errorf("creating topics: %w", err)
	}
	for topic, err := range response.Errors {
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	return nil
}

// change is a topic whose partition count is not what it was.
type change struct {
	topic      string
	was, isNow int32
}

// learn takes over what look found. It answers the topics that cannot be written with the reason, and those
// whose count changed. A count that does not divide the lanes is answered as err too.
func (t *topics) learn(found map[string]kafka.Topic) (blocked map[string]string, missing []string, changes []change, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	blocked = map[string]string{}
	var unfit []string
	for _, name := range events.Topics() {
		topic, ok := found[name]
		count := int32(len(topic.Partitions)) //nolint:gosec // a partition count
		switch {
		case !ok || errors.Is(topic.Error, kafka.UnknownTopicOrPartition):
			blocked[name] = "topic missing"
			missing = append(missing, name)
		case topic.Error != nil:
			blocked[name] = topic.Error.Error()
		case count == 0:
			blocked[name] = "topic without partitions"
		case outbox.Lanes%count != 0:
			blocked[name] = fmt.Sprintf("%d partitions do not divide %d", count, outbox.Lanes)
			unfit = append(unfit, fmt.Sprintf("%s has %d", name, count))
		default:
			if was := t.counts[name]; was != 0 && was != count {
				changes = append(changes, change{name, was, count})
			}
			t.counts[name] = count
		}
	}
	if len(unfit) > 0 {
		err = fmt.Errorf("the partition count of every topic must divide %d, and %s: recreate it with 16 partitions", outbox.Lanes, strings.Join(unfit, ", "))
	}
	return blocked, missing, changes, err
}

// watchKafka keeps the relay's picture of the cluster and opens and closes the gate. It returns only when
// ctx ends, or when the first picture shows a topic whose partitions do not fit the lanes.
func (r *Relay) watchKafka(ctx context.Context) error {
	loop := r.health.Loop("kafka", loopSilence)
	delay := minProbeDelay
	first, compared, away := true, false, false
	for {
		loop.Tick()
		found, err := r.topics.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait := refreshInterval
		switch {
		case err != nil:
			r.gate.close(err.Error())
			if !away {
				r.log.WarnContext(ctx, "kafka.away", "error", err.Error())
			}
			away = true
			wait, delay = delay, min(2*delay, maxProbeDelay)
		default:
			blocked, err := r.see(ctx, found)
			if err != nil && first {
				return err
			}
			first, delay = false, minProbeDelay
			compared = compared || r.compareWithRecent(ctx)
			if closed := r.gate.open(); closed > 0 {
				// Its connections are broken, or it was made while nobody answered.
				r.topics.forget()
				if away {
					r.board.retryAllNow()
					r.log.InfoContext(ctx, "kafka.back", "away_ms", closed.Milliseconds())
				}
				away = false
			}
			if len(blocked) > 0 || r.board.failingLanes() > 0 {
				wait = blockedInterval
			}
		}
		r.report(ctx, loop)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.gate.failed:
			// While something is known to be wrong, failures come in numbers: the pace of probing is kept.
			if wait < refreshInterval && !r.gate.isNews(away) {
				select {
				case <-ctx.Done():
				case <-timer.C:
				}
			}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

const movedConsequence = "events that were pending or unread at the change may be read out of order: raise the count only with an empty outbox"

// The newest rows by id, so that it costs the same whatever the table holds.
const movedRecently = `
	SELECT r.topic, count(*)
	FROM (SELECT topic, lane, kafka_partition FROM apipay.outbox_events ORDER BY id DESC LIMIT 1000) r
	JOIN unnest($1::text[], $2::int4[]) AS t (topic, partitions) ON t.topic = r.topic
	WHERE r.kafka_partition <> r.lane % t.partitions
	GROUP BY r.topic`

// compareWithRecent says loudly that events go elsewhere now than those published last, which is how a count that changed
// while no relay ran is noticed. It answers whether it could be told.
func (r *Relay) compareWithRecent(ctx context.Context) bool {
	var names []string
	var counts []int32
	for _, name := range events.Topics() {
		if count := r.topics.partitions(name); count > 0 {
			names, counts = append(names, name), append(counts, count)
		}
	}
	if len(names) < len(events.Topics()) {
		return false
	}
	ctx, cancel := context.WithTimeout(quiet(ctx), statementTimeout)
	defer cancel()
	rows, err := r.pool.Query(ctx, movedRecently, names, counts)
	if err != nil {
		return false
	}
	var name string
	var moved int64
	_, err = pgx.ForEachRow(rows, []any{&name, &moved}, func() error {
		r.log.ErrorContext(ctx, "topic.partitions_changed", "topic", name, "now", r.topics.partitions(name), "recent_events_elsewhere", moved,
			"consequence", movedConsequence)
		return nil
	})
	return err == nil
}

// see takes over a picture of the cluster.
func (r *Relay) see(ctx context.Context, found map[string]kafka.Topic) (map[string]string, error) {
	blocked, missing, changes, err := r.topics.learn(found)
	if len(missing) > 0 && r.createTopics {
		if createErr := r.topics.create(ctx, missing); createErr != nil {
			r.lines.warn(ctx, "topics.create", "error", createErr.Error())
		}
	}
	for _, c := range changes {
		r.topics.forget()
		r.log.ErrorContext(ctx, "topic.partitions_changed", "topic", c.topic, "was", c.was, "now", c.isNow,
			"oldest_pending_seconds", r.metrics.oldest(c.topic), "consequence", movedConsequence)
	}
	if r.board.block(blocked) {
		// The pool still believes that the topic is missing.
		r.topics.forget()
	}
	return blocked, err
}

// report says loudly, every few seconds, what keeps events from going out.
func (r *Relay) report(ctx context.Context, loop interface{ Degraded(reason string) }) {
	var reasons []string
	if reason, since := r.gate.closedBecause(); reason != "" {
		reasons = append(reasons, fmt.Sprintf("no broker answers since %s: %s", since.UTC().Format(time.RFC3339), reason))
	}
	r.board.mu.Lock()
	for _, topic := range slices.Sorted(maps.Keys(r.board.blocked)) {
		reasons = append(reasons, topic+": "+r.board.blocked[topic])
	}
	r.board.mu.Unlock()
	if lanes := r.board.failingLanes(); lanes > 0 && len(reasons) == 0 {
		reasons = append(reasons, fmt.Sprintf("%d lanes are refused: %s", lanes, r.lastFailure.Load()))
	}
	text := strings.Join(reasons, "; ")
	loop.Degraded(text)
	r.metrics.setBlocked(reasons)
	if text != "" && r.blockedLine.due() {
		r.log.WarnContext(ctx, "outbox.blocked", "reason", text, "oldest_pending_seconds", r.metrics.oldestOfAll())
	}
}

// sleep waits and answers false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
