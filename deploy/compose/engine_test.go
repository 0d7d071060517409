package compose

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/pgserver"
)

// machine stands in for the engine: it runs a service's program with the environment that the file gives it. What a container
// would have of its own (names, ports, paths) is replaced by what this machine has.
type machine struct {
	project  *types.Project
	secrets  string            // the folder that /run/secrets stands for
	hosts    map[string]string // "postgres:5432" and the like
	replaced string            // a folder for secrets that name such a host
}

// environ is a service's environment, and nothing else.
func (m *machine) environ(t *testing.T, service string) []string {
	t.Helper()
	var environ []string
	for name, value := range m.project.Services[service].Environment {
		require.NotNil(t, value, "%s of %s has no value", name, service)
		environ = append(environ, name+"="+m.replace(t, *value))
	}
	return environ
}

func (m *machine) replace(t *testing.T, value string) string {
	t.Helper()
	if name, ok := strings.CutPrefix(value, "/run/secrets/"); ok {
		content, err := os.ReadFile(filepath.Join(m.secrets, filepath.Base(m.project.Secrets[name].File)))
		require.NoError(t, err)
		path := filepath.Join(m.replaced, name)
		require.NoError(t, os.WriteFile(path, []byte(m.replace(t, string(content))), 0o600))
		return path
	}
	for from, to := range m.hosts {
		value = strings.ReplaceAll(value, from, to)
	}
	return value
}

// command is how the service's image would be started.
func (m *machine) command(t *testing.T, service string, words ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(filepath.Join(repository, "bin", service), words...)
	command.Env = m.environ(t, service)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// run starts a service and waits until its own check of health is content.
func (m *machine) run(t *testing.T, service string) {
	t.Helper()
	command := m.command(t, service)
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	require.NoError(t, command.Start())
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		require.NoError(t, <-exited)
		if t.Failed() {
			t.Logf("== %s\n%s", service, log.String())
		}
	})
	check := m.project.Services[service].HealthCheck.Test
	require.Equal(t, "/"+service, check[1])
	var out []byte
	deadline := time.Now().Add(60 * time.Second)
	for {
		var err error
		if out, err = m.command(t, service, check[2:]...).CombinedOutput(); err == nil {
			return
		}
		require.True(t, time.Now().Before(deadline), "%s: %s", service, out)
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("%s ended: %v: %s", service, err, log.String())
		case <-time.After(100 * time.Millisecond): // the distance of two checks
		}
	}
}

// startPostgres runs a server of its own, since roles belong to a whole cluster, and prepares it as the image's entry point does.
func startPostgres(t *testing.T, m *machine) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	require.NoError(t, err, "psql is what the image's entry point prepares the database with")
	bin, err := pgserver.Find(t.Context(), os.Stderr)
	require.NoError(t, err)
	require.Equal(t, 17, bin.Major)
	runAs, err := pgserver.ServerUser()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "apipay-compose-") // not t.TempDir: the server's user must be able to enter
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	password, err := os.ReadFile(filepath.Join(m.secrets, "postgres-password"))
	require.NoError(t, err)
	cluster := pgserver.Cluster{Bin: bin, DataDir: filepath.Join(dir, "data"), Port: freePort(t), Password: string(password), Volatile: true, RunAs: runAs}
	require.NoError(t, cluster.Init(t.Context()))
	server := cluster.Command()
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	require.NoError(t, server.Start())
	exited := make(chan struct{})
	go func() { defer close(exited); _ = server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		<-exited
		if t.Failed() {
			t.Logf("== postgres\n%s", log.String())
		}
	})
	require.NoError(t, cluster.WaitReady(t.Context(), exited))
	m.hosts["postgres:5432"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(cluster.Port))

	super, err := url.Parse(cluster.DSN("", "", "postgres"))
	require.NoError(t, err)
	database := *m.project.Services["postgres"].Environment["POSTGRES_DB"]
	environ := []string{
		"PATH=" + filepath.Dir(psql) + ":/usr/bin:/bin", "PGHOST=127.0.0.1", "PGPORT=" + super.Port(), "PGPASSWORD=" + string(password),
		"POSTGRES_USER=" + super.User.Username(), "POSTGRES_DB=" + database,
		"SECRETS_DIR=" + m.secrets, "BOOTSTRAP_SQL=" + filepath.Join(repository, "migrations/bootstrap.sql"),
	}
	for _, words := range [][]string{
		{psql, "--no-psqlrc", "--username=" + super.User.Username(), "--dbname=postgres", "--command=CREATE DATABASE " + database}, // the entry point's own
		{filepath.Join(repository, "deploy/postgres/init.sh")},
	} {
		command := exec.CommandContext(t.Context(), words[0], words[1:]...)
		command.Env = environ
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", words[0], out)
	}
	for _, role := range []string{"owner", "app", "worker", "admin"} {
		secret, err := os.ReadFile(filepath.Join(m.secrets, role+"-password"))
		require.NoError(t, err)
		require.NotContains(t, log.String(), string(secret), "the server's log")
	}
}

// freePort is below the range from which the kernel gives ports to connections, one of which could take it meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

var given sync.Map
