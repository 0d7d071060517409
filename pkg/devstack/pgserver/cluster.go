package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Superuser is the role that initdb makes.
const Superuser = "postgres"

// Cluster is one data folder and the settings that its server runs with.
type Cluster struct {
	// Bin is the installation to run; a data folder keeps to one major version.
	Bin Binaries
	// DataDir belongs to the user that runs the server; initdb makes what is in it.
	DataDir string
	// Port is the TCP port on 127.0.0.1, the only address that is listened on. There is no Unix socket.
	Port int
	// Password is the superuser's.
	Password string
	// Volatile gives up safety against a crash of the machine for speed, for tests. Commits are still waited for.
	Volatile bool
	// RunAs is the user of the server; nil is the current one.
	RunAs *User
}

// Init makes the data folder's content unless it is there already.
func (c Cluster) Init(ctx context.Context) error {
	version, err := os.ReadFile(filepath.Join(c.DataDir, "PG_VERSION"))
	if err == nil {
		if got := strings.TrimSpace(string(version)); got != strconv.Itoa(c.Bin.Major) {
			return fmt.Errorf("the data in %s was made by Postgres %s, but %s is Postgres %d; use that version or `make clean`",
				c.DataDir, got, c.Bin.Dir, c.Bin.Major)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Beside its place and then moved there: a start that is interrupted leaves no half-made data that looks whole.
	unfinished := c.DataDir + ".new"
	if err := c.makeDataDir(unfinished); err != nil {
		return err
	}
	passwordFile, err := c.passwordFile()
	if err != nil {
		return err
	}
	defer os.Remove(passwordFile)
	args := []string{
		"--pgdata", unfinished, "--username", Superuser, "--auth", "scram-sha-256", "--pwfile", passwordFile,
		"--encoding", "UTF8", "--no-locale",
	}
	if c.Volatile {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin.Dir, "initdb"), args...)
	cmd.SysProcAttr = c.RunAs.sysProcAttr()
	cmd.Env = serverEnv()
	cmd.Dir = unfinished
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("initdb: %w: %s", err, lastLine(out))
	}
	return os.Rename(unfinished, c.DataDir)
}

func (c Cluster) makeDataDir(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	if c.RunAs == nil {
		return nil
	}
	return os.Chown(dir, c.RunAs.UID, c.RunAs.GID)
}

// passwordFile is a file for initdb that nobody but the server's user can read.
func (c Cluster) passwordFile() (string, error) {
	// Beside the data, since that is a place its user can enter; initdb wants the data folder itself empty.
	file, err := os.CreateTemp(filepath.Dir(c.DataDir), ".pwfile-")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(c.Password + "\n")
	if c.RunAs != nil {
		err = errors.Join(err, file.Chown(c.RunAs.UID, c.RunAs.GID))
	}
	return file.Name(), errors.Join(err, file.Close())
}

// Command is the server's process, not yet started. SIGINT stops it fast, SIGQUIT at once.
func (c Cluster) Command() *exec.Cmd {
	settings := map[string]string{ //nolint:gosec // no secret among them
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(c.Port),
		"unix_socket_directories": "",
		"max_connections":         "300",
		"shared_buffers":          "128MB",
		"max_wal_size":            "1GB",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"password_encryption":     "scram-sha-256",
		"log_line_prefix":         "%m [%p] %q%u@%d ",
		"logging_collector":       "off",
		// Small machines share one pool of memory among many clusters; huge pages would only fail there.
		"huge_pages": "off",
	}
	if c.Volatile {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
		settings["wal_level"] = "minimal"
		settings["max_wal_senders"] = "0"
	}
	args := []string{"-D", c.DataDir}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	cmd := exec.Command(filepath.Join(c.Bin.Dir, "postgres"), args...)
	cmd.SysProcAttr = c.RunAs.sysProcAttr()
	cmd.Env = serverEnv()
	cmd.Dir = c.DataDir
	return cmd
}

// DSN is the URI of the superuser (role "") or of a role, in the named database.
func (c Cluster) DSN(role, password, database string) string {
	if role == "" {
		role, password = Superuser, c.Password
	}
	uri := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(role, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return uri.String()
}

// WaitReady returns when the server takes connections, and with an error when ctx ends or exited is closed before.
func (c Cluster) WaitReady(ctx context.Context, exited <-chan struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		conn, err := pgx.Connect(ctx, c.DSN("", "", "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		last = err
		select {
		case <-exited:
			return fmt.Errorf("the server on port %d ended while starting", c.Port)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server on port %d: %w: %w", c.Port, ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// serverEnv is what the server needs of the environment: PG* of the caller would change its settings.
func serverEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}
