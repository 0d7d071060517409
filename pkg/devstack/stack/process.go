package stack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// State is what a process of the stack is doing.
type State string

// The states that stack.json and `status` show.
const (
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped" // as asked
	Died    State = "died"    // by itself, or killed
)

// stopTimeout is how long a process may take to end after it was asked; a service takes at most 15 s.
const stopTimeout = 20 * time.Second

// process is one replica: how to start it, and the operating system's process while it runs.
type process struct {
	name     string
	n        int // 1 is the first
	command  func() *exec.Cmd
	stopWith syscall.Signal
	logPath  string
	// ready tells whether it serves; it is asked again until then.
	ready func() error
	// http and ops are the base URLs, where it has them.
	http, ops string

	mu      sync.Mutex
	state   State
	since   time.Time
	pid     int
	exit    string        // how it ended last
	ended   chan struct{} // closed when the running process has ended
	stopped bool          // its end is wanted
}

// label is how the process is called to a person and in the name of its log.
func (p *process) label() string {
	if p.n == 1 {
		return p.name
	}
	return p.name + "/" + strconv.Itoa(p.n)
}

// start runs the program in a session of its own, with nothing of the caller's open. onEnd is called once, when it
// has ended.
func (p *process) start(onEnd func(*process)) error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.label(), err)
	}
	ended := make(chan struct{})
	p.pid, p.state, p.since, p.exit, p.stopped, p.ended = cmd.Process.Pid, Running, time.Now(), "", false, ended
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.state, p.since, p.exit, p.pid = Died, time.Now(), "exit status 0", 0
		if err != nil {
			p.exit = err.Error()
		}
		if p.stopped {
			p.state = Stopped
		}
		p.mu.Unlock()
		onEnd(p) // before anybody who waits goes on: it writes files that they may remove
		close(ended)
	}()
	return nil
}

// view is a consistent look at the process.
func (p *process) view() (state State, pid int, exit string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.pid, p.exit, p.since
}

// stop asks the process to end, and insists after stopTimeout.
func (p *process) stop() {
	p.mu.Lock()
	pid, ended := p.pid, p.ended
	p.stopped = true
	p.mu.Unlock()
	if pid == 0 {
		return
	}
	_ = syscall.Kill(pid, p.stopWith)
	signalTree(pid, syscall.SIGCONT) // a paused process could not hear it
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		signalTree(pid, syscall.SIGKILL)
		<-ended
	}
}

// kill ends the process and its children at once.
func (p *process) kill() {
	p.mu.Lock()
	pid, ended := p.pid, p.ended
	p.mu.Unlock()
	if pid == 0 {
		return
	}
	signalTree(pid, syscall.SIGKILL)
	<-ended
}

// hold pauses the process and its children, or lets them go on.
func (p *process) hold(paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return fmt.Errorf("%s does not run", p.label())
	}
	signal, state := syscall.SIGCONT, Running
	if paused {
		signal, state = syscall.SIGSTOP, Paused
	}
	signalTree(p.pid, signal)
	if p.state != state {
		p.state, p.since = state, time.Now()
	}
	return nil
}

// lastLog is the last line that the process wrote, for an error message.
func (p *process) lastLog() string {
	file, err := os.Open(p.logPath)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > 4096 {
		_, _ = file.Seek(-4096, io.SeekEnd)
	}
	body, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	return string(lines[len(lines)-1])
}

// signalTree signals a process, then its descendants: Postgres gives each child a session of its own, so a process group
// would not reach them.
func signalTree(pid int, signal syscall.Signal) {
	below := descendants(pid)
	_ = syscall.Kill(pid, signal)
	for _, child := range below {
		_ = syscall.Kill(child, signal)
	}
	if signal == syscall.SIGSTOP { // children made between the look and the stop
		for _, child := range descendants(pid) {
			_ = syscall.Kill(child, signal)
		}
	}
}

func descendants(pid int) []int {
	children := map[int][]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a bad pattern
	for _, path := range paths {
		if child, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			if stat, err := readStat(child); err == nil {
				children[stat.parent] = append(children[stat.parent], child)
			}
		}
	}
	var below []int
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		below = append(below, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	slices.Sort(below)
	return below
}

type procStat struct {
	state  byte
	parent int
	// started is in clock ticks since boot; with the pid it names one process for ever.
	started uint64
}

func readStat(pid int) (procStat, error) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The second field is the program's name in parentheses, which may hold anything.
	_, rest, ok := bytes.Cut(body[bytes.LastIndexByte(body, ')')+1:], []byte(" "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return procStat{}, errors.New("unreadable process status")
	}
	parent, parentErr := strconv.Atoi(fields[1])
	started, startErr := strconv.ParseUint(fields[19], 10, 64)
	return procStat{state: fields[0][0], parent: parent, started: started}, errors.Join(parentErr, startErr)
}
