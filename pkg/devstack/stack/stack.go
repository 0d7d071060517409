package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// readyTimeout bounds how long one process may take until it serves, while the stack starts.
const readyTimeout = 60 * time.Second

// ErrRunning means that the stack's folder is in use.
var ErrRunning = errors.New("a stack is already running in this folder")

// Stack is a running stack; the process that holds it supervises the others.
type Stack struct {
	cfg     Config
	secrets *secrets
	env     map[string]map[string]string
	log     *slog.Logger
	unlock  func()

	mu        sync.Mutex // guards what follows, and the writing of the files
	processes []*process
	complete  bool // stack.json may be written
	control   io.Closer
	logFile   io.Closer
}

// Up starts a stack and returns once every replica is ready and stack.json is complete. When it fails, nothing of it runs.
// Steps are told to progress, one line each.
func Up(ctx context.Context, cfg Config, progress io.Writer) (_ *Stack, err error) {
	if err := cfg.checkPrograms(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.path("logs"), 0o755); err != nil { //nolint:gosec // Postgres's user passes through
		return nil, err
	}
	unlock, err := takeLock(cfg)
	if err != nil {
		return nil, err
	}
	if err := checkFree(cfg); err != nil {
		unlock()
		return nil, err
	}
	s := &Stack{cfg: cfg, unlock: unlock}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if err := s.openLog(); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.startAll(ctx, progress); err != nil {
		return nil, err
	}
	if err := s.provideDemo(ctx); err != nil {
		return nil, fmt.Errorf("making the demo tenant: %w", err)
	}
	if err := s.serveControl(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complete = true
	if err := s.write(); err != nil {
		return nil, err
	}
	s.log.Info("stack.ready")
	return s, nil
}

// checkFree refuses to start beside what an earlier stack or another program left.
func checkFree(cfg Config) error {
	if left := leftovers(cfg); len(left) > 0 {
		return fmt.Errorf("%d processes of an earlier stack still run in %s; `make down` stops them", len(left), cfg.Dir)
	}
	return cfg.checkPorts()
}

func (s *Stack) openLog() error {
	file, err := os.OpenFile(s.cfg.logPath("supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s.logFile = file
	s.log = slog.New(slog.NewJSONHandler(file, nil))
	return nil
}

// prepare makes what the processes need on disk.
func (s *Stack) prepare() (err error) {
	if s.secrets, err = loadSecrets(s.cfg); err != nil {
		return err
	}
	tokensFile, err := s.secrets.writeTokens(s.cfg, callerValue(s.cfg.Environ, "APIPAY_ADMIN_TOKENS_FILE"))
	if err != nil {
		return err
	}
	keysetFile, err := ensureKeyset(s.cfg)
	if err != nil {
		return fmt.Errorf("making the key set: %w", err)
	}
	s.env = serviceEnv(s.cfg, s.secrets, tokensFile, keysetFile)
	return nil
}

// startAll starts everything in its order: each step needs the one before.
func (s *Stack) startAll(ctx context.Context, progress io.Writer) error {
	cluster, err := s.cluster(ctx, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "starting Postgres %d on port %d\n", cluster.Bin.Major, cluster.Port)
	if err := s.startReady(ctx, s.postgresProcess(cluster)); err != nil {
		return err
	}
	fmt.Fprintln(progress, "applying the schema")
	if err := s.bootstrap(ctx, cluster); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	fmt.Fprintf(progress, "starting the broker on port %d\n", brokerPort+s.cfg.PortOffset)
	if err := s.startReady(ctx, s.brokerProcess()); err != nil {
		return err
	}
	replicas, err := s.serviceProcesses()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "starting %d services\n", len(replicas))
	for _, p := range replicas {
		if err := s.start(p); err != nil {
			return err
		}
	}
	for _, p := range replicas {
		if err := waitReady(ctx, p, readyTimeout); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) startReady(ctx context.Context, p *process) error {
	if err := s.start(p); err != nil {
		return err
	}
	return waitReady(ctx, p, readyTimeout)
}

// start adds the process to the stack and starts it.
func (s *Stack) start(p *process) error {
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	if err := p.start(s.onEnd); err != nil {
		return err
	}
	return s.record()
}

// record writes the files, which every change of a process is followed by.
func (s *Stack) record() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write()
}

// onEnd notes that a process has ended; it is not started again, and the others go on.
func (s *Stack) onEnd(p *process) {
	state, _, exit, _ := p.view()
	level := slog.LevelInfo
	if state == Died {
		level = slog.LevelError
	}
	s.log.Log(context.Background(), level, "process.ended", "process", p.label(), "state", string(state), "exit", exit)
	if err := s.record(); err != nil {
		s.log.Error("state.write", "error", err)
	}
}

func waitReady(ctx context.Context, p *process, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			_, _, exit, _ := p.view()
			return fmt.Errorf("%s ended while starting (%s): %s", p.label(), exit, p.lastLog())
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("%s is not ready after %s (%w); its log is %s", p.label(), limit, err, p.logPath)
		case <-tick.C:
		}
	}
}

// Stop ends every process, services first, and gives the folder back. The data stays.
func (s *Stack) Stop() {
	s.mu.Lock()
	s.complete = false
	control := s.control
	processes := s.processes
	s.mu.Unlock()
	if control != nil {
		control.Close()
	}
	var group sync.WaitGroup
	for _, p := range processes {
		if p.name != Postgres && p.name != Broker {
			group.Go(p.stop)
		}
	}
	group.Wait()
	for _, p := range processes {
		if p.name == Postgres || p.name == Broker {
			group.Go(p.stop)
		}
	}
	group.Wait()
	_ = os.Remove(s.cfg.path(stackFile))
	_ = os.Remove(s.cfg.path(processFile))
	if s.logFile != nil {
		s.logFile.Close()
	}
	s.unlock()
}

// takeLock makes this process the folder's supervisor. The kernel gives the lock back when the process ends.
func takeLock(cfg Config) (func(), error) {
	file, err := os.OpenFile(lockPath(cfg), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("%w (%s); `make down` stops it", ErrRunning, cfg.Dir)
	}
	if err := errors.Join(file.Truncate(0), writeString(file, strconv.Itoa(os.Getpid()))); err != nil {
		file.Close()
		return nil, err
	}
	return func() {
		// A program that is being started holds a copy of the file until it replaces this one, so closing alone would leave
		// the folder locked for a moment, with this process's id in it.
		_ = file.Truncate(0)
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		file.Close()
	}, nil
}

func writeString(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func lockPath(cfg Config) string { return filepath.Join(cfg.Dir, "supervisor.lock") }
