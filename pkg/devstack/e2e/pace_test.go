package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// traffic is a steady load: purchases at a rate, each step of them called once, and every failure kept.
type traffic struct {
	mu        sync.Mutex
	calls     int
	bought    int
	failures  []string
	latencies []time.Duration
}

// once does one call, which must be answered with want.
func (f *traffic) once(ctx context.Context, c *client, want int, method, path, key string, body any) (object, bool) {
	begun := time.Now()
	status, answer, err := c.do(ctx, method, path, key, body)
	took := time.Since(begun)
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return nil, false // cut off by the end of the test, by nobody else
	}
	f.calls++
	f.latencies = append(f.latencies, took)
	if err == nil && status == want {
		return answer, true
	}
	f.failures = append(f.failures, fmt.Sprintf("%s %s %s: %d %v %v after %s", begun.Format("15:04:05.000"), method, path, status, answer, err, took.Round(time.Millisecond)))
	return nil, false
}

// buy creates, confirms and refunds one intent, each by a single call.
func (f *traffic) buy(ctx context.Context, s shop) {
	key := uuid.NewString()
	intent, ok := f.once(ctx, s.client, http.StatusCreated, "POST", "/v1/payment-intents", key+"-create",
		object{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_visa"})
	if !ok {
		return
	}
	path := "/v1/payment-intents/" + intent.text("id")
	if _, ok := f.once(ctx, s.client, http.StatusOK, "POST", path+"/confirm", key+"-confirm", nil); !ok {
		return
	}
	if _, ok := f.once(ctx, s.client, http.StatusCreated, "POST", path+"/refunds", key+"-refund", object{"amount": 400}); !ok {
		return
	}
	f.mu.Lock()
	f.bought++
	f.mu.Unlock()
}

// every runs do at a rate until ctx ends; a call that takes long holds up no other. It returns when all have ended.
func every(ctx context.Context, interval time.Duration, do func(n int)) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all.Go(func() { do(n) })
		}
	}
}

// quantile of the calls' latencies.
func (f *traffic) quantile(q float64) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return quantile(f.latencies, q)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}

// requireNoFailure shows the first failures.
func (f *traffic) requireNoFailure(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.failures[:min(len(f.failures), 20)], "%d of %d calls failed", len(f.failures), f.calls)
	require.NotZero(t, f.calls)
}

// seconds reads a test's length from the environment; without it the test is not one of `make test`.
func seconds(t *testing.T, variable string) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		t.Skipf("%s is not set: see the Makefile", variable)
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return time.Duration(n) * time.Second
}

// order is devstack for a goroutine: the error comes back.
func (h *hub) order(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(repository, "bin/devstack"), args...)
	command.Env = h.environ
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("devstack %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func loadAverage() string {
	body, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(body))[:3], " ")
}
