// Command migrate applies the schema: migrate up | down | status.
//
// The DSN of apipay_owner comes from APIPAY_DATABASE_URL, or from the file that APIPAY_DATABASE_URL_FILE names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"apipay.io/hub/migrations"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "dev"

const usage = `migrate: applies the schema of ApiPay Hub

  migrate up       apply what is missing, and make the weekly partitions
  migrate down     take back the newest migration (its data is lost)
  migrate status   list the migrations and when each was applied
  migrate version  which build this is

The DSN of the role apipay_owner comes from APIPAY_DATABASE_URL, or from the
file that APIPAY_DATABASE_URL_FILE names. Any number of "migrate up" may run
at once, also through a pooler in transaction mode that has room for two
connections. One that fails may be run again.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 1 && (args[0] == "help" || args[0] == "-h" || args[0] == "--help") {
		_, err := io.WriteString(out, usage)
		return err
	}
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		_, err := fmt.Fprintf(out, "migrate %s (%s)\n", version, runtime.Version())
		return err
	}
	if len(args) != 1 {
		return errors.New("needs one word: up, down or status (migrate help tells more)")
	}
	switch args[0] {
	case "up", "down", "status":
	default:
		return fmt.Errorf("does not know %q: it takes up, down or status", args[0])
	}
	dsn, err := ownerDSN()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return migrations.Up(ctx, dsn)
	case "down":
		return migrations.Down(ctx, dsn)
	}
	list, err := migrations.List(ctx, dsn)
	if err != nil {
		return err
	}
	for _, m := range list {
		state := "pending"
		if !m.AppliedAt.IsZero() {
			state = "applied " + m.AppliedAt.UTC().Format("2006-01-02T15:04:05Z")
		}
		fmt.Fprintf(out, "%05d  %-32s %s\n", m.Version, m.Name, state)
	}
	return nil
}

func ownerDSN() (string, error) {
	dsn, file := os.Getenv("APIPAY_DATABASE_URL"), os.Getenv("APIPAY_DATABASE_URL_FILE")
	switch {
	case dsn != "" && file != "":
		return "", errors.New("APIPAY_DATABASE_URL and APIPAY_DATABASE_URL_FILE are both set: keep one")
	case dsn != "":
		return dsn, nil
	case file != "":
		content, err := os.ReadFile(file) // #nosec G304 G703 -- the operator names the file
		if err != nil {
			return "", fmt.Errorf("reading APIPAY_DATABASE_URL_FILE: %w", err)
		}
		return strings.TrimSpace(string(content)), nil
	}
	return "", errors.New("APIPAY_DATABASE_URL is not set: it must be the DSN of apipay_owner")
}
