// Package ops is what every service shares for being run: the process's frame ([Main], [Group]), liveness,
// readiness and metrics on the ops port, logs and traces.
package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Health is what the probes tell of one process. Liveness is about loops that stopped ticking, which a
// restart mends; readiness is about what the process needs to do its work now.
type Health struct {
	mu       sync.Mutex
	loops    map[string]*Loop
	checks   map[string]func(context.Context) error
	draining atomic.Bool
}

// NewHealth is a process that is alive and ready.
func NewHealth() *Health {
	return &Health{loops: map[string]*Loop{}, checks: map[string]func(context.Context) error{}}
}

// Loop is one loop of the process that must tick.
type Loop struct {
	last       atomic.Int64
	maxSilence time.Duration
	degraded   atomic.Pointer[string]
}

// Loop registers a loop. The process counts as dead once the loop has not ticked for maxSilence.
func (h *Health) Loop(name string, maxSilence time.Duration) *Loop {
	l := &Loop{maxSilence: maxSilence}
	l.Tick()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loops[name] = l
	return l
}

// Tick says that the loop is turning, whether or not its work succeeds.
func (l *Loop) Tick() { l.last.Store(time.Now().UnixNano()) }

// Degraded says why the loop's work does not go on for now; "" says that it does. It shows in /readyz's
// text and neither kills nor unreadies the process: a restart would not help.
func (l *Loop) Degraded(reason string) {
	if reason == "" {
		l.degraded.Store(nil)
		return
	}
	l.degraded.Store(&reason)
}

// Ready registers a condition of readiness. It is asked at each probe, with a deadline of two seconds.
func (h *Health) Ready(name string, check func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = check
}

// Drain makes the process unready for good: it is about to stop.
func (h *Health) Drain() { h.draining.Store(true) }

// alive answers the loops that are stuck.
func (h *Health) alive() (stuck []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.loops)) {
		silence := time.Since(time.Unix(0, h.loops[name].last.Load()))
		if silence > h.loops[name].maxSilence {
			stuck = append(stuck, fmt.Sprintf("%s has not ticked for %s", name, silence.Round(time.Second)))
		}
	}
	return stuck
}

// ready answers what stands in the way of work, and what is degraded without standing in the way.
func (h *Health) ready(ctx context.Context) (problems, degraded []string) {
	if h.draining.Load() {
		return []string{"draining"}, nil
	}
	h.mu.Lock()
	checks := maps.Clone(h.checks)
	for _, name := range slices.Sorted(maps.Keys(h.loops)) {
		if reason := h.loops[name].degraded.Load(); reason != nil {
			degraded = append(degraded, name+": "+*reason)
		}
	}
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if err := checks[name](ctx); err != nil {
			problems = append(problems, name+": "+err.Error())
		}
	}
	return problems, degraded
}

// measure exports what the probes tell, so that a loop that stands still is seen before the probe ends the process.
func (h *Health) measure() (unregister func(), err error) {
	meter := otel.Meter("apipay.io/hub/pkg/ops")
	silence, err := meter.Float64ObservableGauge("apipay.loop.silence", metric.WithUnit("s"),
		metric.WithDescription("How long ago a loop of the process last turned, by loop."))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	degraded, err := meter.Int64ObservableGauge("apipay.loop.degraded",
		metric.WithDescription("1 while a loop's work does not go on, such as for want of Kafka; by loop."))
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for name, loop := range h.loops {
			of := metric.WithAttributes(attribute.String("loop", name))
			o.ObserveFloat64(silence, time.Since(time.Unix(0, loop.last.Load())).Seconds(), of)
			var standing int64
			if loop.degraded.Load() != nil {
				standing = 1
			}
			o.ObserveInt64(degraded, standing, of)
		}
		return nil
	}, silence, degraded)
	if err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	return func() { _ = registration.Unregister() }, nil // nothing is left to observe
}
