package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// balancer sends each call to a replica that was ready a moment ago, as the balancer in front of a deployment does: it
// probes /readyz and takes out who answers otherwise. It tries nothing twice: what fails, fails for the client.
type balancer struct {
	replicas []*replica
	next     atomic.Int64
}

type replica struct {
	api, ops string
	ready    atomic.Bool
}

const probeEvery = time.Second

// balance probes from now until the test ends.
func balance(t *testing.T, api, ops []string) *balancer {
	t.Helper()
	b := &balancer{}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range api {
		r := &replica{api: api[i], ops: ops[i]}
		r.ready.Store(probe(ctx, r.ops+"/readyz") == http.StatusOK)
		b.replicas = append(b.replicas, r)
		all.Go(func() {
			tick := time.NewTicker(probeEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					r.ready.Store(probe(ctx, r.ops+"/readyz") == http.StatusOK)
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return b
}

// pick answers "" while nobody is ready.
func (b *balancer) pick() string {
	first := int(b.next.Add(1))
	for i := range b.replicas {
		if r := b.replicas[(first+i)%len(b.replicas)]; r.ready.Load() {
			return r.api
		}
	}
	return ""
}

// sees waits until the balancer sends calls to every replica. Whoever restarts them one by one does so before the next one,
// as a rolling update does: ready is what the balancer has seen, not what a probe of another would say.
func (b *balancer) sees(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for _, r := range b.replicas {
		for !r.ready.Load() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not become ready again", r.ops)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// probes opens a connection per look: one kept open would be that of a process which has ended since.
var probes = http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// probe answers the status, 0 when nobody answers.
func probe(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	response, err := probes.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}
