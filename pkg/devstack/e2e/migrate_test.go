package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/migrations"
	"apipay.io/hub/pkg/devstack/testdb"
)

// TestMigrators (B89): eight programs migrate one empty database at once, the one that works is killed in the middle, directly
// and through a pooler in transaction mode. Every version is applied once, the others end well, and nobody holds the lock.
func TestMigrators(t *testing.T) {
	t.Parallel()
	require.NoError(t, build())
	for name, through := range map[string]func(*testing.T, string) string{
		"Directly":         func(_ *testing.T, dsn string) string { return dsn },
		"ThroughPgBouncer": pgbouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Empty(t)
			super := db.Pool(t, db.Super)
			_, err := super.Exec(t.Context(), migrations.BootstrapSQL)
			require.NoError(t, err)
			// The second migration waits: another session is about to make a table of that name.
			blocker, err := super.Begin(t.Context())
			require.NoError(t, err)
			_, err = blocker.Exec(t.Context(), `CREATE TABLE apipay.payment_intents ()`)
			require.NoError(t, err)

			dsn := through(t, db.Owner)
			migrators := make([]*migrator, 8)
			for i := range migrators {
				migrators[i] = startMigrate(t, filepath.Join(repository, "bin/migrate"), dsn)
			}
			waitFor(t, super, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'apipay_owner' AND wait_event_type = 'Lock'`)
			require.Equal(t, 1, number(t, super, lockHolders), "one works")
			killed := holder(t, migrators, dsn)
			killed.kill()
			// The lock is free at once, and the next one comes as far.
			waitFor(t, super, 2, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'apipay_owner' AND wait_event_type = 'Lock'`)
			require.NoError(t, blocker.Rollback(t.Context()))

			for _, m := range migrators {
				if m == killed {
					continue
				}
				require.NoError(t, m.wait(), "%s", m.out.String())
				require.Empty(t, m.out.String())
			}
			list, err := migrations.List(t.Context(), db.Owner)
			require.NoError(t, err)
			for _, m := range list {
				require.False(t, m.AppliedAt.IsZero(), m.Name)
			}
			require.Zero(t, number(t, super, `SELECT count(*) - count(DISTINCT version_id) FROM apipay.goose_db_version`), "versions applied twice")
			require.Zero(t, number(t, super, lockHolders), "a dead holder of the lock")
		})
	}
}

const lockHolders = `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()`

// holder is the migrator whose end frees the lock. Behind a pooler the server does not know its clients, so each is found by
// stopping the others' sight: the one whose connections are open while all others only try now and then.
func holder(t *testing.T, migrators []*migrator, dsn string) *migrator {
	t.Helper()
	uri, err := url.Parse(dsn)
	require.NoError(t, err)
	for _, m := range migrators {
		// Two connections that stay: the lock's and the migration's. A waiting one has one, between its tries.
		if len(connections(t, m.command.Process.Pid, uri.Port())) >= 2 {
			return m
		}
	}
	t.Fatal("nobody works")
	return nil
}

// connections are the sockets of a process to a port of this machine, from /proc.
func connections(t *testing.T, pid int, port string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `ls -l /proc/"$0"/fd 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p'`, strconv.Itoa(pid)).Output()
	require.NoError(t, err)
	local, err := strconv.Atoi(port)
	require.NoError(t, err)
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || !strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", local)) {
			continue
		}
		for inode := range strings.Lines(string(out)) {
			if strings.TrimSpace(inode) == fields[9] {
				found = append(found, fields[9])
			}
		}
	}
	return found
}

// migrator is one `migrate up`.
type migrator struct {
	command *exec.Cmd
	out     bytes.Buffer
	exited  chan error
}

func startMigrate(t *testing.T, path, dsn string) *migrator {
	t.Helper()
	m := &migrator{command: exec.Command(path, "up"), exited: make(chan error, 1)}
	m.command.Env = []string{"APIPAY_DATABASE_URL=" + dsn}
	m.command.Stdout, m.command.Stderr = &m.out, &m.out
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, m.command.Start())
	go func() { m.exited <- m.command.Wait() }()
	t.Cleanup(m.kill)
	return m
}

// wait answers how it ended.
func (m *migrator) wait() error {
	err := <-m.exited
	m.exited <- err
	return err
}

func (m *migrator) kill() {
	_ = m.command.Process.Kill()
	_ = m.wait()
}

func number(t *testing.T, pool *pgxpool.Pool, query string) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&n), query)
	return n
}

func waitFor(t *testing.T, pool *pgxpool.Pool, want int, query string) {
	t.Helper()
	require.Eventually(t, func() bool { return number(t, pool, query) == want }, 30*time.Second, 20*time.Millisecond, query)
}

// pgbouncer puts one in transaction mode before a database and answers the DSN through it.
func pgbouncer(t *testing.T, dsn string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(program); err != nil {
			if out, err := exec.Command(filepath.Join(repository, "services/payment-api/scripts/install-pgbouncer.sh")).CombinedOutput(); err != nil {
				require.Empty(t, os.Getenv("CI"), "CI needs pgbouncer: %s", out)
				t.Skipf("no pgbouncer on this machine, and it cannot be installed: %s", out)
			}
		}
	}
	uri, err := url.Parse(dsn)
	require.NoError(t, err)
	// The program refuses to run as root, and its files must then be readable for somebody else.
	dir, err := os.MkdirTemp("", "apipay-pgbouncer-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	password, _ := uri.User.Password()
	users := filepath.Join(dir, "users.txt")
	require.NoError(t, os.WriteFile(users, []byte(`"`+uri.User.Username()+`" "`+password+"\"\n"), 0o644))
	host, port, err := net.SplitHostPort(freePorts(t, 1)[0])
	require.NoError(t, err)
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, []byte(`[databases]
* = host=`+uri.Hostname()+` port=`+uri.Port()+`
[pgbouncer]
listen_addr = `+host+`
listen_port = `+port+`
unix_socket_dir =
auth_type = scram-sha-256
auth_file = `+users+`
pool_mode = transaction
default_pool_size = 4
`), 0o644))
	command := exec.Command(program, ini)
	if os.Getuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	uri.Host = net.JoinHostPort(host, port)
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", uri.Host)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	return uri.String()
}
