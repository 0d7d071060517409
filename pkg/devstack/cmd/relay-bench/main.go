// Command relay-bench measures the relay against the figures of its acceptance cases.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"apipay.io/hub/pkg/devstack/relaybench"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay-bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	cfg := relaybench.Config{Progress: os.Stderr}
	flags := flag.NewFlagSet("relay-bench", flag.ContinueOnError)
	flags.StringVar(&cfg.Bin, "bin", "bin", "folder of the programs")
	flags.BoolVar(&cfg.Apache, "apache", false, "Apache Kafka instead of the embedded broker")
	flags.IntVar(&cfg.Runs, "runs", 3, "of each row; the median is told")
	flags.Float64Var(&cfg.Scale, "scale", 1, "of backlogs and times")
	list := flags.String("rows", "", "comma-separated, of "+strings.Join(relaybench.Names(), ", ")+"; all of them without it")
	report := flags.String("report", "", "file to append the table to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list != "" {
		cfg.Rows = strings.Split(*list, ",")
	}
	out := io.Writer(os.Stdout)
	if *report != "" {
		file, err := os.OpenFile(*report, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644) //nolint:gosec // a report to be read
		if err != nil {
			return err
		}
		defer file.Close()
		out = io.MultiWriter(out, file)
	}
	return relaybench.Run(ctx, cfg, out)
}
