// Package rig is a Postgres, a broker behind a proxy and relays, each a process of its own that can be killed, stopped for a
// while and started again. What is tried on it is in the packages chaos and relaybench.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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
	stat, err := readStat(p.PID())
	return stat.own, stat.rss, err
}

// TreeCPU is what the process and its children have used, those that have ended too.
func (p *Process) TreeCPU() (time.Duration, error) {
	pid := p.PID()
	stat, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	used := stat.own + stat.ended
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := readStat(child); err == nil && stat.parent == pid {
			used += stat.own + stat.ended
		}
	}
	return used, nil
}

// PID is that of the process that was started last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// procStat is a part of /proc/PID/stat.
type procStat struct {
	parent     int
	own, ended time.Duration
	rss        int64
}

func readStat(pid int) (procStat, error) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The name in parentheses may hold spaces; the state is the first field after it.
	_, after, _ := strings.Cut(string(body[max(0, bytes.LastIndexByte(body, ')')):]), " ")
	fields := strings.Fields(after)
	if len(fields) < 22 {
		return procStat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	number := func(i int) int64 {
		n, numberErr := strconv.ParseInt(fields[i], 10, 64)
		err = errors.Join(err, numberErr)
		return n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return procStat{
		parent: int(number(1)),
		own:    time.Duration(number(11)+number(12)) * tick,
		ended:  time.Duration(number(13)+number(14)) * tick,
		rss:    number(21) * int64(os.Getpagesize()),
	}, err
}

func (p *Process) lastLines() string {
	body, _ := os.ReadFile(p.LogPath) // what is not there cannot be told
	return string(body[max(0, len(body)-600):])
}
