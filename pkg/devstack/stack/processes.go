package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/migrations"
	"apipay.io/hub/pkg/devstack/pgserver"
)

// cluster makes the data folder ready for its server.
func (s *Stack) cluster(ctx context.Context, progress io.Writer) (pgserver.Cluster, error) {
	bin, err := pgserver.Find(ctx, progress)
	if err != nil {
		return pgserver.Cluster{}, err
	}
	runAs, err := pgserver.ServerUser()
	if err != nil {
		return pgserver.Cluster{}, err
	}
	dir, err := dataDir(s.cfg, runAs)
	if err != nil {
		return pgserver.Cluster{}, err
	}
	cluster := pgserver.Cluster{
		Bin: bin, DataDir: dir, Port: postgresPort + s.cfg.PortOffset, Password: s.secrets.SuperuserPassword, RunAs: runAs,
	}
	return cluster, cluster.Init(ctx)
}

// dataDir is where Postgres's data is: in the stack's folder, or, when the server's user cannot enter that, in one outside.
func dataDir(cfg Config, runAs *pgserver.User) (string, error) {
	inside, outside := cfg.path("postgres"), outsideDir(cfg)
	// Data stays where it was made, whatever the permissions on the way are now.
	if _, err := os.Stat(filepath.Join(outside, "postgres")); err == nil {
		return filepath.Join(outside, "postgres"), pgserver.OwnDir(outside)
	}
	if runAs.CanEnter(inside) {
		return inside, nil
	}
	return filepath.Join(outside, "postgres"), pgserver.OwnDir(outside)
}

// outsideDir is named for the stack's folder, so that `make clean` finds it.
func outsideDir(cfg Config) string {
	sum := sha256.Sum256([]byte(cfg.Dir))
	return filepath.Join("/var/tmp", "apipay-dev-"+hex.EncodeToString(sum[:8]))
}

func (s *Stack) postgresProcess(cluster pgserver.Cluster) *process {
	return &process{
		name: Postgres, n: 1, command: cluster.Command, stopWith: syscall.SIGINT, logPath: s.cfg.logPath(Postgres),
		ready: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			conn, err := pgx.Connect(ctx, cluster.DSN("", "", "postgres"))
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
	}
}

func (s *Stack) brokerProcess() *process {
	port := brokerPort + s.cfg.PortOffset
	return &process{
		name: Broker, n: 1, stopWith: syscall.SIGTERM, logPath: s.cfg.logPath(Broker),
		command: func() *exec.Cmd {
			return exec.Command(s.cfg.program("devstack"), "broker", strconv.Itoa(port), s.cfg.path("broker"))
		},
		ready: func() error {
			conn, err := net.DialTimeout("tcp", address(port), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
}

// serviceProcesses are all replicas; each one's ports stay its own over restarts.
func (s *Stack) serviceProcesses() ([]*process, error) {
	var all []*process
	for _, service := range services {
		extra, err := freePorts(2 * (s.cfg.Replicas[service.name] - 1))
		if err != nil {
			return nil, err
		}
		for n := range s.cfg.Replicas[service.name] {
			ops, httpPort := service.ops+s.cfg.PortOffset, service.http+s.cfg.PortOffset
			if n > 0 {
				ops, httpPort = extra[2*n-2], extra[2*n-1]
			}
			if service.http == 0 {
				httpPort = 0
			}
			all = append(all, s.serviceProcess(service.name, n+1, httpPort, ops))
		}
	}
	return all, nil
}

func (s *Stack) serviceProcess(name string, n, httpPort, opsPort int) *process {
	p := &process{name: name, n: n, stopWith: syscall.SIGTERM, ops: "http://" + address(opsPort)}
	p.logPath = s.cfg.logPath(strings.ReplaceAll(p.label(), "/", "-"))
	environ := append(processEnv(s.cfg.Environ, s.env[name]), "APIPAY_OPS_ADDR="+address(opsPort))
	if httpPort != 0 {
		p.http = "http://" + address(httpPort)
		environ = append(environ, "APIPAY_HTTP_ADDR="+address(httpPort))
	}
	p.command = func() *exec.Cmd {
		cmd := exec.Command(s.cfg.program(name))
		cmd.Env = environ
		return cmd
	}
	p.ready = func() error { return get(p.ops + "/readyz") }
	return p
}

// probe opens a connection per request: one kept open would be stale after a restart.
var probe = http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) error {
	response, err := probe.Get(url)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// bootstrap makes the database, the roles with their passwords, and the schema; each may be there already.
func (s *Stack) bootstrap(ctx context.Context, cluster pgserver.Cluster) error {
	maintenance, err := pgx.Connect(ctx, cluster.DSN("", "", "postgres"))
	if err != nil {
		return err
	}
	defer maintenance.Close(context.WithoutCancel(ctx))
	var exists bool
	const look = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
	if err := maintenance.QueryRow(ctx, look, database).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := maintenance.Exec(ctx, "CREATE DATABASE "+database); err != nil {
			return err
		}
	}
	target, err := pgx.Connect(ctx, cluster.DSN("", "", database))
	if err != nil {
		return err
	}
	defer target.Close(context.WithoutCancel(ctx))
	if _, err := target.Exec(ctx, migrations.BootstrapSQL); err != nil {
		return fmt.Errorf("bootstrap.sql: %w", err)
	}
	for role, password := range s.secrets.RolePasswords {
		// Roles and passwords are our own words: letters and digits.
		if _, err := target.Exec(ctx, fmt.Sprintf("ALTER ROLE apipay_%s PASSWORD '%s'", role, password)); err != nil {
			return fmt.Errorf("role apipay_%s: %w", role, err)
		}
	}
	return nil
}

// migrate runs the same program that a deployment runs.
func (s *Stack) migrate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.cfg.program("migrate"), "up")
	cmd.Env = processEnv(s.cfg.Environ, map[string]string{
		"APIPAY_DATABASE_URL": dsn(s.cfg, "apipay_owner", s.secrets.RolePasswords["owner"]),
	})
	log, err := os.OpenFile(s.cfg.logPath("migrate"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		p := process{logPath: s.cfg.logPath("migrate")}
		return fmt.Errorf("migrate up: %w: %s", err, p.lastLog())
	}
	return nil
}
