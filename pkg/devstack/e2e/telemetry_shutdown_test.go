package e2e

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestShutdownFrozen: Postgres stands still, with its connections open, while every service has work in it; SIGTERM. Each
// process is gone within 15 s: by itself, or cut off with one line.
func TestShutdownFrozen(t *testing.T) {
	h := start(t)
	shops := h.shops(t, listen(t), 1)
	services := map[string]*program{}
	for _, service := range serviceNames {
		services[service] = h.extra(t, service, "")
	}
	h.devstack(t, "pause", "postgres")
	// Requests that wait for the frozen database while the process is told to stop.
	var waiting sync.WaitGroup
	for _, api := range []string{"payment-api", "admin-api"} {
		c := newClient(shops[0].token, []string{services[api].api})
		path := map[string]string{"payment-api": "/v1/payment-intents", "admin-api": "/admin/v1/tenants"}[api]
		if api == "admin-api" {
			c = newClient(h.Demo.AdminToken, []string{services[api].api})
		}
		t.Cleanup(c.close)
		waiting.Go(func() { _, _, _ = c.do(t.Context(), "GET", path, uuid.NewString(), nil) })
	}
	var all sync.WaitGroup
	for service, p := range services {
		all.Go(func() {
			p.mu.Lock()
			command, exited := p.command, p.exited
			p.mu.Unlock()
			begin := time.Now()
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("%s: %v", service, err)
				return
			}
			select {
			case err := <-exited:
				exited <- err
				took := time.Since(begin)
				log, _ := os.ReadFile(p.log)
				var exit *exec.ExitError
				cut := errors.As(err, &exit)
				t.Logf("%s: gone after %s, %v", service, took.Round(10*time.Millisecond), err)
				if took > 15*time.Second {
					t.Errorf("%s took %s", service, took)
				}
				if cut && !contains(string(log), "cut off") {
					t.Errorf("%s ended with %v without saying why: %s", service, err, log)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("%s still runs 20 s after SIGTERM", service)
			}
		})
	}
	all.Wait()
	h.devstack(t, "resume", "postgres")
	waiting.Wait()
	require.NotEmpty(t, services)
}
