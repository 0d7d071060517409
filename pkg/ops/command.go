package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

// version is set by the linker: -X apipay.io/hub/pkg/ops.version=v1.2.3.
var version = "dev"

// Version is this build's.
func Version() string { return version }

const probeTimeout = 3 * time.Second

// command does what a service's program is asked for by words. An image without a shell or curl has nothing else that
// could look at /readyz.
func command(ctx context.Context, service string, words []string, out io.Writer) error {
	switch strings.Join(words, " ") {
	case "healthcheck":
		return healthcheck(ctx, os.Getenv("APIPAY_OPS_ADDR"))
	case "version", "--version":
		_, err := fmt.Fprintf(out, "%s %s (%s)\n", service, version, runtime.Version())
		return err
	}
	return fmt.Errorf("does not know %q: without a word it serves, settings come from the environment; there are healthcheck and version", strings.Join(words, " "))
}

// healthcheck asks the process beside it, at its ops address, whether it is ready.
func healthcheck(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("healthcheck needs APIPAY_OPS_ADDR, the address that the service has")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", http.NoBody) // #nosec G704 -- its own environment names the address
	if err != nil {
		return fmt.Errorf("asking for readiness: %w", err)
	}
	// A transport of its own: no proxy of the environment stands before the process itself.
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request) // #nosec G704 -- as above
	if err != nil {
		return fmt.Errorf("asking for readiness: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("asking for readiness: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(body)))
	}
	return nil
}
