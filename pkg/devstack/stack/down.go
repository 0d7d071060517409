package stack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// downTimeout covers a stack whose processes all use their stopTimeout.
const downTimeout = 2*stopTimeout + 10*time.Second

// Down stops the stack of cfg's folder, whether its supervisor is there or not; the data stays.
func Down(cfg Config, progress io.Writer) error {
	if _, err := os.Stat(cfg.Dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(progress, "nothing is running in "+cfg.Dir)
		return nil
	}
	unlock, err := takeLock(cfg)
	supervised := errors.Is(err, ErrRunning)
	if supervised {
		fmt.Fprintln(progress, "stopping the stack in "+cfg.Dir)
		unlock, err = stopSupervisor(cfg)
	}
	if err != nil {
		return err
	}
	defer unlock()
	left := leftovers(cfg)
	// Services end before what they use: the last started first.
	for i := len(left) - 1; i >= 0; i-- {
		fmt.Fprintf(progress, "stopping %s (pid %d)\n", left[i].Name, left[i].PID)
		left[i].end()
	}
	if len(left) == 0 && !supervised {
		fmt.Fprintln(progress, "nothing is running in "+cfg.Dir)
	}
	return errors.Join(remove(cfg.path(stackFile)), remove(cfg.path(processFile)), remove(cfg.path(socketFile)))
}

// stopSupervisor asks the process that holds the lock to stop its stack, and takes the lock when it has.
func stopSupervisor(cfg Config) (func(), error) {
	deadline := time.Now().Add(downTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	asked := 0
	for {
		unlock, err := takeLock(cfg)
		if err == nil || !errors.Is(err, ErrRunning) {
			return unlock, err
		}
		pid, err := supervisorPID(cfg)
		if err != nil {
			return nil, err
		}
		if pid != 0 && pid != asked {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("stopping the supervisor (pid %d): %w", pid, err)
			}
			asked = pid
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the supervisor (pid %d) still runs %s after it was asked to stop", pid, downTimeout)
		}
		<-tick.C
	}
}

// supervisorPID is what the lock's holder wrote into it: 0 for one that has only just taken it, or is giving it back.
func supervisorPID(cfg Config) (int, error) {
	body, err := os.ReadFile(lockPath(cfg))
	text := strings.TrimSpace(string(body))
	if err != nil || text == "" {
		return 0, err
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("no process id in %s", lockPath(cfg))
	}
	if pid == os.Getpid() {
		return 0, fmt.Errorf("the stack in %s is this process's own", cfg.Dir)
	}
	return pid, nil
}

// end stops a process that is not our child, so it is looked at until it is gone.
func (r processRecord) end() {
	_ = syscall.Kill(r.PID, r.Stop)
	signalTree(r.PID, syscall.SIGCONT)
	deadline := time.Now().Add(stopTimeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.alive() {
		if time.Now().After(deadline) {
			signalTree(r.PID, syscall.SIGKILL)
			deadline = deadline.Add(stopTimeout)
		}
		<-tick.C
	}
}

// Clean removes the stack's folder and all its data; a running stack is stopped first.
func Clean(cfg Config, progress io.Writer) error {
	if err := Down(cfg, progress); err != nil {
		return err
	}
	for _, dir := range []string{cfg.Dir, outsideDir(cfg)} {
		if err := removeOwn(dir); err != nil {
			return err
		}
	}
	fmt.Fprintln(progress, "removed the data in "+cfg.Dir)
	return nil
}

// removeOwn removes only what a stack made: APIPAY_DEV_DIR may name a folder with other things in it.
func removeOwn(dir string) error {
	for _, name := range []string{
		"postgres", "postgres.new", "broker", "logs", "secrets.json", "keyset.json", "admin-tokens.json",
		stackFile, processFile, socketFile, "supervisor.lock",
	} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
