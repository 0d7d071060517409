package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"apipay.io/hub/pkg/devstack/stack"
)

// up keeps the stack in the foreground until it is interrupted.
func up(ctx context.Context, cfg stack.Config) error {
	s, err := stack.Up(ctx, cfg, os.Stdout)
	if err != nil {
		return err
	}
	printReady(os.Stdout, cfg, s.Info())
	fmt.Println("Ctrl-C stops it.")
	<-ctx.Done()
	fmt.Println("stopping")
	s.Stop()
	return nil
}

func printReady(out io.Writer, cfg stack.Config, info stack.Info) {
	fmt.Fprintf(out, "ready: payment-api %s, admin-api %s\n", info.URLs.PaymentAPI, info.URLs.AdminAPI)
	fmt.Fprintf(out, "       console %s/ : sign in with the token %s (role support)\n", info.URLs.AdminAPI, info.Demo.Tokens["support"])
	fmt.Fprintf(out, "       everything else, the tokens of viewer and admin too, is in %s\n", stack.InfoPath(cfg))
}

const (
	// superviseFlag starts the supervisor of a detached stack.
	superviseFlag = "--supervise"
	// reportFD is where it tells its starter how the start goes: lines of progress, then one of the two words.
	reportFD    = 3
	reportReady = "READY"
	reportError = "ERROR "
)

// upDetached starts a supervisor in a session of its own and returns when the stack is ready.
func upDetached(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	cmd := exec.Command(program, "up", superviseFlag)
	cmd.ExtraFiles = []*os.File{writer} // becomes reportFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	writer.Close()
	if err != nil {
		return err
	}
	// An interrupt while it starts is for it too: it undoes what it began and reports that.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		line := lines.Text()
		if line == reportReady {
			return nil
		}
		if message, ok := strings.CutPrefix(line, reportError); ok {
			_ = cmd.Wait()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New(message)
		}
		fmt.Println(line)
	}
	return fmt.Errorf("the supervisor ended while starting: %w", cmd.Wait())
}

// supervise is the process of a detached stack.
func supervise(ctx context.Context, cfg stack.Config) error {
	syscall.CloseOnExec(reportFD)
	report := os.NewFile(reportFD, "report")
	s, err := stack.Up(ctx, cfg, report)
	if err != nil {
		fmt.Fprintf(report, "%s%s\n", reportError, strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	printReady(report, cfg, s.Info())
	fmt.Fprintln(report, reportReady)
	report.Close()
	<-ctx.Done()
	s.Stop()
	return nil
}

func status(cfg stack.Config) error {
	info, err := stack.ReadInfo(cfg)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no stack is running in %s; `make up` starts one", cfg.Dir)
	}
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tSTATE\tPID\tSINCE\tLOG")
	for _, p := range info.Processes {
		pid, state := "-", string(p.State)
		if p.PID != 0 {
			pid = fmt.Sprint(p.PID)
		}
		if p.State == stack.Died {
			state += " (" + p.Exit + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Name, state, pid, p.Since.Format(time.TimeOnly)+"Z", p.Log)
	}
	return table.Flush()
}
