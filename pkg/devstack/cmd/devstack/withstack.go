package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"apipay.io/hub/pkg/devstack/stack"
)

// envStack names the stack.json of the stack that a command runs with.
const envStack = "APIPAY_STACK"

// withStack runs a command with a throw-away stack of its own, on ports that nobody uses, and removes the stack after it.
func withStack(ctx context.Context, args []string) error {
	if len(args) < 2 || args[0] != "--" {
		return fmt.Errorf("with-stack needs -- and a command; %w", errUsage)
	}
	dir, err := os.MkdirTemp("", "apipay-stack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("APIPAY_DEV_DIR", filepath.Join(dir, "dev")); err != nil {
		return err
	}
	s, err := upSomewhere(ctx)
	if err != nil {
		return err
	}
	cfg, err := stack.ConfigFromEnv()
	if err != nil {
		s.Stop()
		return err
	}
	defer func() {
		s.Stop()
		_ = stack.Clean(cfg, io.Discard) // data that Postgres may have elsewhere goes, too
	}()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...) // #nosec G204 -- the caller's own command
	cmd.Env = append(os.Environ(), envStack+"="+stack.InfoPath(cfg))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return exitStatus(max(exit.ExitCode(), 1))
	}
	return err
}

// upSomewhere tries port offsets until one is free.
func upSomewhere(ctx context.Context) (*stack.Stack, error) {
	const tries = 10
	for try := 1; ; try++ {
		offset := 100 * (70 + rand.IntN(60)) // #nosec G404 -- not a secret
		if err := os.Setenv("APIPAY_PORT_OFFSET", fmt.Sprint(offset)); err != nil {
			return nil, err
		}
		cfg, err := stack.ConfigFromEnv()
		if err != nil {
			return nil, err
		}
		s, err := stack.Up(ctx, cfg, io.Discard)
		if err == nil {
			return s, nil
		}
		if try == tries || ctx.Err() != nil || !strings.Contains(err.Error(), "is in use") {
			return nil, err
		}
		if err := stack.Clean(cfg, io.Discard); err != nil {
			return nil, err
		}
	}
}
