// Command devstack runs the hub on one machine: Postgres, a broker and the four services, without Docker.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/demo"
	"apipay.io/hub/pkg/devstack/stack"
)

const usage = `devstack: runs ApiPay Hub on this machine (Postgres, a broker, the four services)

  devstack up [--detach]     start everything; stay in the foreground until Ctrl-C, or return when all is ready
  devstack down              stop what runs; the data stays
  devstack status            what runs, and where
  devstack demo              start everything, show a payment become a signed webhook, stop everything
  devstack clean             stop what runs and remove its data

  devstack stop|kill|start|restart|pause|resume NAME[/n]
                             act on one process of a running stack; NAME is postgres, broker, payment-api,
                             admin-api, outbox-relay or webhook-dispatcher, n its replica from 1 (all without it)

  devstack test-env [--apache-kafka] -- COMMAND...
                             run a command with TEST_DATABASE_URL and TEST_KAFKA_BROKERS of a fresh Postgres and broker
  devstack with-stack -- COMMAND...
                             run a command with a throw-away stack, whose stack.json APIPAY_STACK names

From the environment: APIPAY_DEV_DIR (default .dev) holds the state, so that several stacks run side by side;
APIPAY_PORT_OFFSET (multiple of 100, 0..13000) moves all ports; PAYMENT_APIS, RELAYS and DISPATCHERS set the replicas;
APIPAY_POSTGRES_BIN names a folder with postgres and initdb. Other APIPAY_* are passed on to the services.
`

// errUsage is a command line that says nothing usable.
var errUsage = errors.New("run devstack help to see the commands")

func main() {
	closeOnExec()
	// A reader of our output that goes away is no reason to leave processes behind.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	cancel()
	var exit exitStatus
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(int(exit))
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "devstack: interrupted")
		os.Exit(130)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		fmt.Print(usage)
		return nil
	}
	command, args := args[0], args[1:]
	switch command {
	case "broker":
		return runBroker(ctx, args)
	case "test-env":
		return testEnv(ctx, args)
	case "with-stack":
		return withStack(ctx, args)
	}
	cfg, err := stack.ConfigFromEnv()
	if err != nil {
		return err
	}
	switch {
	case command == "up" && len(args) == 0:
		return up(ctx, cfg)
	case command == "up" && len(args) == 1 && args[0] == "--detach":
		return upDetached(ctx)
	case command == "up" && len(args) == 1 && args[0] == superviseFlag:
		return supervise(ctx, cfg)
	case slices.Contains(stack.Actions, command):
		if len(args) != 1 {
			return fmt.Errorf("%s needs one NAME or NAME/n; %w", command, errUsage)
		}
		lines, err := stack.Control(ctx, cfg, command, args[0])
		for _, line := range lines {
			if line != "" {
				fmt.Println(line)
			}
		}
		return err
	case len(args) > 0:
		return fmt.Errorf("%s does not take %q; %w", command, args, errUsage)
	case command == "down":
		return stack.Down(cfg, os.Stdout)
	case command == "clean":
		return stack.Clean(cfg, os.Stdout)
	case command == "status":
		return status(cfg)
	case command == "demo":
		return demo.Run(ctx, cfg, os.Stdout)
	default:
		return fmt.Errorf("no command %q; %w", command, errUsage)
	}
}

// runBroker is the broker's own process.
func runBroker(ctx context.Context, args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return fmt.Errorf("broker needs a port, a folder and perhaps the address to tell clients; %w", errUsage)
	}
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	config := broker.Config{Port: port, DataDir: args[1]}
	if len(args) == 3 {
		config.Advertise = args[2]
	}
	b, err := broker.Start(config)
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println("the broker serves on", b.Addrs()[0])
	<-ctx.Done()
	return nil
}

// closeOnExec keeps descriptors that this program was started with, such as make's, from the processes it starts.
func closeOnExec() {
	paths, _ := filepath.Glob("/proc/self/fd/*") // the only error is a bad pattern
	for _, path := range paths {
		if fd, err := strconv.Atoi(filepath.Base(path)); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
