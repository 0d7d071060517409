// Package rig is a Postgres, a broker behind a proxy and relays, each a process of its own that can be killed, stopped for a
// while and started again. What is tried on it is in the packages chaos and relaybench.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that keeps its settings over its ends and starts. It ends with this process.
type Process struct {
	Name    string
	LogPath string
	command func(context.Context) (*exec.Cmd, error)
	// ready returns once the program serves; nil: it is not waited for.
	ready func(ctx context.Context, exited <-chan struct{}) error
	// orderly is the signal that ends it in order.
	orderly syscall.Signal

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start runs the program and waits until it serves.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd, err := p.command(ctx)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in its log
	}()
	p.cmd, p.exited = cmd, exited
	if p.ready == nil {
		return nil
	}
	if err := p.ready(ctx, exited); err != nil {
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("starting %s: %w: %s", p.Name, err, p.lastLines())
	}
	return nil
}

// Signal sends a signal, which reaches nobody if the process has ended.
func (p *Process) Signal(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(signal)
	}
}

// Exited is closed when the process that was started last has ended.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return p.exited
}

// Kill is kill -9.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Exited()
}

// Stop ends the process in order, and by force after the limit.
func (p *Process) Stop(limit time.Duration) error {
	p.Signal(p.orderly)
	select {
	case <-p.Exited():
		return nil
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%s did not stop within %s", p.Name, limit)
	}
}

// CPU is what the running process has used, and RSS its memory in bytes.
func (p *Process) CPU() (used time.Duration, rss int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0, 0, errors.New("not started")
	}
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	_, after, _ := strings.Cut(string(body), ") ")
	var state string
	var skip, user, system, pages int64
	fields := []any{&state}
	for range 10 {
		fields = append(fields, &skip)
	}
	fields = append(fields, &user, &system)
	for range 8 {
		fields = append(fields, &skip)
	}
	fields = append(fields, &pages)
	if _, err := fmt.Sscan(after, fields...); err != nil {
		return 0, 0, fmt.Errorf("reading the process's times: %w", err)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Duration(user+system) * tick, pages * int64(os.Getpagesize()), nil
}

func (p *Process) lastLines() string {
	body, _ := os.ReadFile(p.LogPath) // what is not there cannot be told
	return string(body[max(0, len(body)-600):])
}
