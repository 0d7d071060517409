package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"apipay.io/hub/pkg/devstack/embedded"
)

// exitStatus is that of a command which has told itself what was wrong.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// testEnv runs a command with a Postgres and a broker that all its tests share, and ends both after it. What the caller's
// environment names already is used instead. The broker is Apache Kafka when the first argument asks for it.
func testEnv(ctx context.Context, args []string) error {
	provideBroker := embedded.Provide
	if len(args) > 0 && args[0] == "--apache-kafka" {
		args = args[1:]
		provideBroker = func(embedded.Kind) (string, func(), error) { return embedded.Start(embedded.ApacheKafka) }
	}
	if len(args) < 2 || args[0] != "--" {
		return fmt.Errorf("test-env needs -- and a command; %w", errUsage)
	}
	environ := os.Environ()
	for variable, kind := range map[string]embedded.Kind{
		embedded.EnvDatabaseURL: embedded.Postgres, embedded.EnvKafkaBrokers: embedded.Broker,
	} {
		if os.Getenv(variable) != "" {
			continue
		}
		provide := embedded.Provide
		if kind == embedded.Broker {
			provide = provideBroker
		}
		address, stop, err := provide(kind)
		if err != nil {
			return err
		}
		defer stop()
		environ = append(environ, variable+"="+address)
	}
	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	cmd.Env = environ
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return exitStatus(max(exit.ExitCode(), 1))
	}
	return err
}
