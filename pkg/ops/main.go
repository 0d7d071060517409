package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Main runs a service until SIGINT or SIGTERM: run's context ends then, and it has about 15 seconds to
// drain. An error is told in one line on standard error and ends the process with status 1. A second signal
// ends it at once.
func Main(service string, run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", service, oneLine(err))
		os.Exit(1)
	}
}

// Group runs the actors of a process: each blocks until its context ends or it fails, and the first one to
// return stops the others. nil and context.Canceled are clean stops.
func Group(ctx context.Context, actors ...func(ctx context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, actor := range actors {
		group.Go(func() error {
			err := actor(ctx)
			if err == nil {
				// errgroup cancels the others only on an error.
				return context.Canceled
			}
			return err
		})
	}
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Serve runs a process's actors as [Group] does, beside its ops port, which outlives them: from the moment ctx
// ends, /readyz answers 503, and it does so until the last actor has drained.
func Serve(ctx context.Context, listener net.Listener, health *Health, registry *prometheus.Registry, actors ...func(ctx context.Context) error) error {
	defer context.AfterFunc(ctx, health.Drain)()
	opsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	work := func(ctx context.Context) error {
		defer stop()
		return Group(ctx, actors...)
	}
	return Group(ctx, work, func(context.Context) error { return ServeOps(opsCtx, listener, health, registry) })
}
