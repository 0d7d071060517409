// Command relay-chaos is the property test of the outbox and the relay over real processes, with faults, a seed and a report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"apipay.io/hub/pkg/devstack/chaos"
)

var errViolated = errors.New("an oracle was violated")

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay-chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	cfg := chaos.Config{Progress: os.Stdout}
	flags := flag.NewFlagSet("relay-chaos", flag.ContinueOnError)
	flags.StringVar(&cfg.Bin, "bin", "bin", "folder of the programs")
	flags.BoolVar(&cfg.Apache, "apache", false, "Apache Kafka instead of the embedded broker")
	flags.Uint64Var(&cfg.Seed, "seed", uint64(time.Now().UnixNano()), "what decides the writers' doings and the times of the kills")
	flags.IntVar(&cfg.Rounds, "rounds", 20, "how often a relay is killed")
	flags.IntVar(&cfg.Replicas, "replicas", 2, "relays")
	flags.BoolVar(&cfg.Short, "short", false, "shorten every fault that lasts")
	flags.DurationVar(&cfg.Pause, "pause", 10*time.Millisecond, "of each writer between two transactions")
	list := flags.String("faults", "", "comma-separated, of "+strings.Join(chaos.Names(), ", ")+"; all of them without it")
	limit := flags.Duration("limit", 30*time.Minute, "when to give up")
	report := flags.String("report", "", "file to append the report to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list != "" {
		cfg.Faults = strings.Split(*list, ",")
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	result, err := chaos.Run(ctx, cfg)
	if err != nil {
		return fmt.Errorf("seed %d: %w", cfg.Seed, err)
	}
	result.Report(os.Stdout)
	if *report != "" {
		file, err := os.OpenFile(*report, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // a report to be read
		if err != nil {
			return err
		}
		defer file.Close()
		result.Report(file)
	}
	if result.Failed() {
		return fmt.Errorf("seed %d: %w", cfg.Seed, errViolated)
	}
	return nil
}
