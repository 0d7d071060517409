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
