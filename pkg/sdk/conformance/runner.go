package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Job is one line that a runner reads.
type Job struct {
	Vector string `json:"vector"`
	Client Client `json:"client"`
	Steps  []Step `json:"steps"`
}

// Result is one line that a runner writes: for each step an object with ok or error, and what README.md lists.
type Result struct {
	Vector string            `json:"vector"`
	Steps  []json.RawMessage `json:"steps"`
}

const (
	// A runner that needs longer for one vector hangs; the slowest of them take a few seconds.
	jobTimeout = 30 * time.Second
	// Interpreters and virtual machines need a while for their first line.
	startTimeout = 60 * time.Second
)

// Runner is an SDK's runner process. It is started with the first job, and again after it died.
type Runner struct {
	// Dir is the working directory, Command the program and its arguments.
	Dir     string
	Command []string

	process *exec.Cmd
	in      io.WriteCloser
	lines   chan []byte
	stderr  *tail
	used    bool
}

// Run sends one job and waits for its answer.
func (r *Runner) Run(ctx context.Context, job Job) (Result, error) {
	if r.process == nil {
		if err := r.start(); err != nil {
			return Result{}, fmt.Errorf("starting the runner: %w", err)
		}
	}
	line, err := json.Marshal(job)
	if err != nil {
		return Result{}, err
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		return Result{}, r.died(err)
	}
	limit := jobTimeout
	if !r.used {
		limit = startTimeout
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case answer, ok := <-r.lines:
		if !ok {
			return Result{}, r.died(errors.New("the runner ended"))
		}
		r.used = true
		var result Result
		if err := json.Unmarshal(answer, &result); err != nil {
			return Result{}, r.died(fmt.Errorf("reading the runner's answer %.200q: %w", answer, err))
		}
		if result.Vector != job.Vector {
			return Result{}, r.died(fmt.Errorf("the runner answered %q", result.Vector))
		}
		return result, nil
	case <-timer.C:
		return Result{}, r.died(fmt.Errorf("no answer within %s", limit))
	case <-ctx.Done():
		return Result{}, r.died(ctx.Err())
	}
}

func (r *Runner) start() error {
	cmd := exec.Command(r.Command[0], r.Command[1:]...) //nolint:noctx // ended by Close, which lets it finish first
	cmd.Dir = r.Dir
	// A proxy of this machine must not see what is meant for the scripted server.
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*")
	// Runners may be wrapped in scripts; the group lets Close end them with their children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.stderr = &tail{}
	cmd.Stderr = r.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.process, r.in, r.lines, r.used = cmd, in, make(chan []byte), false
	go func(lines chan<- []byte) {
		defer close(lines)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(make([]byte, 64<<10), 64<<20)
		for scanner.Scan() {
			lines <- bytes.Clone(scanner.Bytes())
		}
	}(r.lines)
	return nil
}

// died ends what is left of the runner and adds the end of its error output to the reason.
func (r *Runner) died(reason error) error {
	output := r.stderr
	r.kill()
	if text := strings.TrimSpace(output.String()); text != "" {
		return fmt.Errorf("%w; it wrote: %s", reason, text)
	}
	return reason
}

func (r *Runner) kill() {
	_ = syscall.Kill(-r.process.Process.Pid, syscall.SIGKILL)
	r.wait()
}

func (r *Runner) wait() {
	for range r.lines {
		continue // the reader must end before Wait closes its pipe
	}
	_ = r.process.Wait()
	r.process = nil
}

// Close ends the runner: it closes its input and kills what is still there 5 s later.
func (r *Runner) Close() {
	if r.process == nil {
		return
	}
	r.in.Close()
	pid := r.process.Process.Pid
	timer := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	defer timer.Stop()
	r.wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - 4096; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}
