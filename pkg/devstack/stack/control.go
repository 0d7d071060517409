package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Actions are what can be done to a single process of a running stack.
var Actions = []string{"stop", "kill", "start", "restart", "pause", "resume"}

// controlReady bounds how long `start` waits for a process to serve. Without its database or broker it may not for long,
// which is no failure of the start.
const controlReady = 10 * time.Second

type controlRequest struct {
	Action string `json:"action"`
	Target string `json:"target"` // NAME or NAME/n
}

type controlAnswer struct {
	Lines []string `json:"lines,omitempty"`
	Error string   `json:"error,omitempty"`
}

// serveControl takes orders from the command line. The supervisor starts every process, so that it sees each one end.
func (s *Stack) serveControl() error {
	_ = os.Remove(s.cfg.path(socketFile)) // a killed supervisor's
	listener, err := listenIn(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("listening for orders: %w", err)
	}
	s.mu.Lock()
	s.control = listener
	s.mu.Unlock()
	var orders sync.Mutex // one at a time
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				var request controlRequest
				if json.NewDecoder(conn).Decode(&request) != nil {
					return
				}
				orders.Lock()
				defer orders.Unlock()
				lines, err := s.act(request.Action, request.Target)
				answer := controlAnswer{Lines: lines}
				if err != nil {
					answer.Error = err.Error()
				}
				_ = json.NewEncoder(conn).Encode(answer)
			}()
		}
	}()
	return nil
}

// Control asks the supervisor of a running stack to act on NAME (every replica) or NAME/n (the n-th, from 1).
func Control(ctx context.Context, cfg Config, action, target string) ([]string, error) {
	conn, err := dialIn(ctx, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("no stack is running in %s; `make up` starts one", cfg.Dir)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(controlRequest{Action: action, Target: target}); err != nil {
		return nil, err
	}
	var answer controlAnswer
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&answer); err != nil {
		return nil, errors.New("the stack ended before it answered")
	}
	if answer.Error != "" {
		return answer.Lines, errors.New(answer.Error)
	}
	return answer.Lines, nil
}

func (s *Stack) act(action, target string) ([]string, error) {
	targets, err := s.find(target)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(targets))
	errs := make([]error, len(targets))
	var group sync.WaitGroup
	for i, p := range targets {
		group.Go(func() { lines[i], errs[i] = s.actOn(action, p) })
	}
	group.Wait()
	return lines, errors.Join(append(errs, s.record())...)
}

func (s *Stack) actOn(action string, p *process) (string, error) {
	_, pid, _, _ := p.view()
	s.log.Info("process."+action, "process", p.label(), "pid", pid)
	switch action {
	case "stop", "kill":
		if pid == 0 {
			return p.label() + " does not run", nil
		}
		if action == "stop" {
			p.stop()
			return p.label() + " stopped", nil
		}
		p.kill()
		return p.label() + " killed", nil
	case "start":
		if pid != 0 {
			return fmt.Sprintf("%s runs already (pid %d)", p.label(), pid), nil
		}
		return s.startAgain(p)
	case "restart":
		p.stop()
		return s.startAgain(p)
	case "pause", "resume":
		if err := p.hold(action == "pause"); err != nil {
			return "", err
		}
		return p.label() + " " + action + "d", nil
	default:
		return "", fmt.Errorf("no action %q; there are %s", action, strings.Join(Actions, ", "))
	}
}

func (s *Stack) startAgain(p *process) (string, error) {
	if err := p.start(s.onEnd); err != nil {
		return "", err
	}
	_, pid, _, _ := p.view()
	err := waitReady(context.Background(), p, controlReady)
	state, _, _, _ := p.view()
	switch {
	case err == nil:
		return fmt.Sprintf("%s started (pid %d)", p.label(), pid), nil
	case state == Died:
		return "", err
	default:
		return fmt.Sprintf("%s started (pid %d), not ready yet: %v", p.label(), pid, err), nil
	}
}

func (s *Stack) find(target string) ([]*process, error) {
	name, number, numbered := strings.Cut(target, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*process
	for _, p := range s.processes {
		if key(p.name) == key(name) && (!numbered || number == strconv.Itoa(p.n)) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		labels := make([]string, len(s.processes))
		for i, p := range s.processes {
			labels[i] = p.label()
		}
		return nil, fmt.Errorf("no process %q; there are %s", target, strings.Join(labels, ", "))
	}
	return found, nil
}

const socketFile = "control.sock"

// A socket's path has room for 107 bytes only; through an open folder any depth is short enough.
func listenIn(dir string) (net.Listener, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", throughFD(folder))
	if err != nil {
		folder.Close()
		return nil, err
	}
	return controlListener{listener, folder}, nil
}

// controlListener keeps the folder open, through which the socket is removed when it is closed.
type controlListener struct {
	net.Listener
	folder *os.File
}

func (l controlListener) Close() error { return errors.Join(l.Listener.Close(), l.folder.Close()) }

func dialIn(ctx context.Context, dir string) (net.Conn, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return (&net.Dialer{}).DialContext(ctx, "unix", throughFD(folder))
}

func throughFD(folder *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.FormatUint(uint64(folder.Fd()), 10), socketFile)
}
