package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/pgserver"
)

const (
	dirPrefix = "apipay-embedded-"
	// staleAfter is how old a folder that nobody holds must be before it is taken for one of a killed helper.
	staleAfter = 10 * time.Minute
)

func servePostgres(ctx context.Context, progress io.Writer) (string, func(), error) {
	bin, err := pgserver.Find(ctx, progress)
	if err != nil {
		return "", nil, err
	}
	runAs, err := pgserver.ServerUser()
	if err != nil {
		return "", nil, err
	}
	base := os.TempDir()
	if !runAs.CanEnter(base) {
		base = "/var/tmp"
	}
	removeStale(base)
	dir, err := heldDir(base)
	if err != nil {
		return "", nil, err
	}
	cluster := pgserver.Cluster{
		Bin: bin, DataDir: filepath.Join(dir, "data"), Password: rand.Text(), Volatile: true, RunAs: runAs,
	}
	// Another process may take the port between our look and the server's start.
	for range 5 {
		var server *exec.Cmd
		if server, err = startPostgres(ctx, &cluster, filepath.Join(dir, "log")); err == nil {
			return cluster.DSN("", "", "postgres"), func() {
				_ = server.Process.Signal(syscall.SIGQUIT) // the data is thrown away
				_, _ = server.Process.Wait()
				_ = os.RemoveAll(dir)
			}, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return "", nil, errors.Join(err, os.RemoveAll(dir))
}

func startPostgres(ctx context.Context, cluster *pgserver.Cluster, logPath string) (*exec.Cmd, error) {
	if err := cluster.Init(ctx); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cluster.Port = port
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	server := cluster.Command()
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr.Pdeathsig = syscall.SIGQUIT // should the helper itself be killed
	if err := server.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	ready := make(chan error, 1)
	go func() { ready <- cluster.WaitReady(ctx, exited) }()
	for {
		select {
		case err := <-ready:
			if err == nil {
				return server, nil
			}
			_ = server.Process.Kill()
			_, _ = server.Process.Wait()
			return nil, fmt.Errorf("%w: %s", err, logTail(logPath))
		case <-time.After(50 * time.Millisecond):
		}
		// Waited for without blocking, so that the process stays ours to signal.
		var status syscall.WaitStatus
		if pid, _ := syscall.Wait4(server.Process.Pid, &status, syscall.WNOHANG, nil); pid == server.Process.Pid {
			close(exited)
			return nil, fmt.Errorf("%w: %s", <-ready, logTail(logPath))
		}
	}
}

func logTail(path string) string {
	body, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(body[max(0, len(body)-500):])
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("a TCP listener without a TCP address")
	}
	return addr.Port, nil
}

// heldDir makes a folder and a lock in it that lasts as long as this process, which tells it from a stale one.
func heldDir(base string) (string, error) {
	dir, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the server's user passes through
		return "", err
	}
	// Never closed: the lock ends with the process.
	fd, err := syscall.Open(filepath.Join(dir, "lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	return dir, syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeStale removes folders whose helper was killed before it could.
func removeStale(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*")) // the only error is a bad pattern
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		file, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		file.Close()
	}
}

func serveBroker(context.Context, io.Writer) (string, func(), error) {
	b, err := broker.Start(broker.Config{})
	if err != nil {
		return "", nil, err
	}
	return b.Addrs()[0], b.Close, nil
}
