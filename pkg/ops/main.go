package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// exitTimeout is the end of the process after a signal, whatever still hangs: below the 15 s after which it would be killed.
const exitTimeout = 14500 * time.Millisecond

// Main runs a service until SIGINT or SIGTERM: run's context ends then, and it has 14.5 seconds to drain; after them
// the process is cut off with status 1. An error is told in one line on standard error and ends the process with
// status 1, too. A second signal ends it at once. Started with a word, the program does that instead: healthcheck asks
// the service beside it for its readiness, version tells the build's.
func Main(service string, run func(ctx context.Context) error) {
	if words := os.Args[1:]; len(words) > 0 {
		run = func(ctx context.Context) error { return command(ctx, service, words, os.Stdout) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop()
		time.AfterFunc(exitTimeout, func() { cutOff(service) })
	})
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", service, oneLine(err))
		os.Exit(1)
	}
}

// cutOff ends the process. What hangs may be whoever reads its standard error.
func cutOff(service string) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		fmt.Fprintf(os.Stderr, "%s: cut off %s after the signal to stop: what was in hand is not finished\n", service, exitTimeout)
	}()
	select {
	case <-told:
	case <-time.After(200 * time.Millisecond):
	}
	os.Exit(1)
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
	unregister, err := health.measure()
	if err != nil {
		return err
	}
	defer unregister()
	defer context.AfterFunc(ctx, health.Drain)()
	opsCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	work := func(ctx context.Context) error {
		defer stop()
		return Group(ctx, actors...)
	}
	return Group(ctx, work, func(context.Context) error { return ServeOps(opsCtx, listener, health, registry) })
}
