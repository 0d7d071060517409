package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Listen binds a TCP address, with an error that says which setting to change.
func Listen(ctx context.Context, setting, addr string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s=%s: %w", setting, addr, errors.Unwrap(err))
	}
	return listener, nil
}

// ServeHTTP serves until ctx ends, then lets running requests finish for at most drain.
func ServeHTTP(ctx context.Context, server *http.Server, listener net.Listener, drain time.Duration) error {
	server.ErrorLog = slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		_ = server.Close() // those still running are cut off: the drain is over
	}
	<-failed
	return nil
}

// ServeOps serves /livez, /readyz and /metrics until ctx ends.
func ServeOps(ctx context.Context, listener net.Listener, health *Health, registry *prometheus.Registry) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, health.alive(), nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		problems, degraded := health.ready(r.Context())
		answer(w, problems, degraded)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	return ServeHTTP(ctx, server, listener, time.Second)
}

func answer(w http.ResponseWriter, problems, degraded []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(problems) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, strings.Join(problems, "\n"))
		return
	}
	fmt.Fprintln(w, "ok")
	for _, line := range degraded {
		fmt.Fprintln(w, "degraded:", line)
	}
}
