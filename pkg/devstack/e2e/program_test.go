package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is one more replica of a service, started by hand with the environment that stack.json records.
type program struct {
	api, ops string
	path     string
	environ  []string
	log      string

	mu      sync.Mutex
	command *exec.Cmd
	exited  chan error
}

// extra starts one more replica of a service beside the stack's own; path is its program, "" for the one that was built.
func (h *hub) extra(t *testing.T, service, path string) *program {
	t.Helper()
	if path == "" {
		path = filepath.Join(repository, "bin", service)
	}
	p := &program{path: path, log: filepath.Join(h.dir, "logs", fmt.Sprintf("extra-%s-%d.log", service, time.Now().UnixNano()))}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "APIPAY_") {
			p.environ = append(p.environ, entry)
		}
	}
	for name, value := range h.Env[strings.ReplaceAll(service, "-", "_")] {
		p.environ = append(p.environ, name+"="+value)
	}
	ports := freePorts(t, 2)
	p.ops = "http://" + ports[0]
	p.environ = append(p.environ, "APIPAY_OPS_ADDR="+ports[0])
	if service == "payment-api" || service == "admin-api" {
		p.api = "http://" + ports[1]
		p.environ = append(p.environ, "APIPAY_HTTP_ADDR="+ports[1])
	}
	require.NoError(t, p.start())
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// start returns once the replica is ready.
func (p *program) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(p.path)
	command.Env, command.Stdout, command.Stderr = p.environ, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	p.mu.Lock()
	p.command, p.exited = command, exited
	p.mu.Unlock()
	deadline := time.Now().Add(30 * time.Second)
	for probe(context.Background(), p.ops+"/readyz") != http.StatusOK {
		select {
		case err := <-exited:
			exited <- err
			return fmt.Errorf("%s ended: %w", p.path, err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready", p.path)
		}
	}
	return nil
}

// stop asks the process to end and tells when it does not within the 15 s that it has.
func (p *program) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command == nil {
		return nil
	}
	defer func() { p.command = nil }()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.exited:
		return err
	case <-time.After(15 * time.Second):
		_ = p.command.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not end within 15 s", p.path)
	}
}

func (p *program) restart() error {
	if err := p.stop(); err != nil {
		return err
	}
	return p.start()
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close() // held until all are chosen
		addresses[i] = listener.Addr().String()
	}
	return addresses
}
