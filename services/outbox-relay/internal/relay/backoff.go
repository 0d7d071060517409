package relay

import (
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// fault says whose fault a failed produce is, and with that what to do.
type fault string

const (
	// faultRecord: the broker refuses the records for themselves. Halve; a single one is parked.
	faultRecord fault = "record"
	// faultLane: this partition or topic cannot be written for now. The lane is held back.
	faultLane fault = "lane"
	// faultLeader is faultLane, and what the client knows about leaders is out of date.
	faultLeader fault = "leader"
	// faultCluster: no answer, or none that was meant for the request. Every lane waits until a probe gets through.
	faultCluster fault = "cluster"
)

// classify is the only place that decides this. Only what is surely the record's own fault may lead to
// parking; everything unknown is kept and tried again.
func classify(err error) fault {
	if errors.Is(err, protocol.ErrNoLeader) {
		return faultLeader
	}
	var code kafka.Error
	if !errors.As(err, &code) {
		// Timeouts, refused and broken connections, failed logins, and the client's own "topic not found",
		// which it also says while it knows no broker.
		return faultCluster
	}
	switch code {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord:
		return faultRecord
	case kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.UnknownTopicOrPartition, kafka.UnknownTopicID,
		kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch, kafka.KafkaStorageError:
		return faultLeader
	case kafka.SASLAuthenticationFailed, kafka.ClusterAuthorizationFailed, kafka.NetworkException, kafka.IllegalSASLState, kafka.UnsupportedSASLMechanism:
		return faultCluster
	default:
		return faultLane
	}
}

// gate is closed while no broker answers. Workers begin no transaction then.
type gate struct {
	mu     sync.Mutex
	reason string // "" is open
	since  time.Time
	opened chan struct{} // closed when the gate opens
	failed chan struct{} // wakes the prober
}

func newGate(reason string) *gate {
	return &gate{reason: reason, since: time.Now(), opened: make(chan struct{}), failed: make(chan struct{}, 1)}
}

// wait answers nil when the gate is open, else a channel that closes when it opens.
func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == "" {
		return nil
	}
	return g.opened
}

// close shuts the gate.
func (g *gate) close(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == "" {
		g.since, g.opened = time.Now(), make(chan struct{})
	}
	g.reason = reason
}

// poke makes the prober look now.
func (g *gate) poke() {
	select {
	case g.failed <- struct{}{}:
	default:
	}
}

// isNews says whether the gate was closed by a produce, and not by a probe that knows already.
func (g *gate) isNews(probeKnows bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason != "" && !probeKnows
}

// open opens the gate and answers for how long it was closed; 0 if it was open.
func (g *gate) open() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason == "" {
		return 0
	}
	g.reason = ""
	close(g.opened)
	return time.Since(g.since)
}

func (g *gate) closedBecause() (reason string, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.since
}
