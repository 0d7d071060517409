package rig

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"apipay.io/hub/migrations"
	"apipay.io/hub/pkg/devstack/broker"
	"apipay.io/hub/pkg/devstack/kafka"
	"apipay.io/hub/pkg/devstack/pgserver"
)

// Options say what to run.
type Options struct {
	// Bin is the folder of the programs that `make build` makes.
	Bin string
	// Apache runs Apache Kafka; else it is the embedded broker.
	Apache bool
	// MemoryOnly keeps the embedded broker's records in memory: it must not be killed then.
	MemoryOnly bool
	// NoBroker leaves the broker out.
	NoBroker bool
	// Durable has Postgres sync its commits to disk.
	Durable bool
	// NoProxy leaves the proxy out, which costs a core of its own at speed.
	NoProxy bool
	// Progress is told of what takes long.
	Progress io.Writer
}

// Rig is everything that runs.
type Rig struct {
	Options
	Dir      string
	Postgres *Process
	Broker   *Process
	Proxy    *Proxy // stands before the broker: clients are told its address
	Direct   string // the broker itself
	Brokers  string // what clients are told: the proxy's address, or the broker's own

	cluster pgserver.Cluster
	relays  int
}

// New starts Postgres, broker and proxy.
func New(ctx context.Context, o Options) (*Rig, error) {
	runAs, err := pgserver.ServerUser()
	if err != nil {
		return nil, err
	}
	base := os.TempDir()
	if !runAs.CanEnter(base) {
		base = "/var/tmp"
	}
	dir, err := os.MkdirTemp(base, "apipay-rig-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the server's user passes through
		return nil, err
	}
	if o.Bin, err = filepath.Abs(o.Bin); err != nil {
		return nil, err
	}
	r := &Rig{Options: o, Dir: dir}
	err = r.startPostgres(ctx, runAs)
	if err == nil && !o.NoBroker {
		err = r.startBroker(ctx)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends what runs and removes its data.
func (r *Rig) Close() {
	for _, p := range []*Process{r.Broker, r.Postgres} {
		if p != nil {
			p.Kill()
		}
	}
	if r.Proxy != nil {
		r.Proxy.Close()
	}
	_ = os.RemoveAll(r.Dir)
}

func (r *Rig) startPostgres(ctx context.Context, runAs *pgserver.User) error {
	bin, err := pgserver.Find(ctx, r.Progress)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	r.cluster = pgserver.Cluster{
		Bin: bin, DataDir: filepath.Join(r.Dir, "postgres"), Port: port, Password: rand.Text(), Volatile: !r.Durable, RunAs: runAs,
	}
	if err := r.cluster.Init(ctx); err != nil {
		return err
	}
	r.Postgres = &Process{
		Name: "postgres", LogPath: filepath.Join(r.Dir, "postgres.log"), orderly: syscall.SIGINT,
		command: func(context.Context) (*exec.Cmd, error) { return r.cluster.Command(), nil },
		ready:   r.cluster.WaitReady,
	}
	return r.Postgres.Start(ctx)
}

func (r *Rig) startBroker(ctx context.Context) error {
	ports := make([]int, 3)
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return err
		}
	}
	r.Direct = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	advertised := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
	if r.NoProxy {
		advertised = r.Direct
	}
	r.Brokers = advertised
	dir := filepath.Join(r.Dir, "broker")
	r.Broker = &Process{
		Name: "broker", LogPath: filepath.Join(r.Dir, "broker.log"), orderly: syscall.SIGTERM,
		ready: func(ctx context.Context, exited <-chan struct{}) error { return kafka.WaitReady(ctx, r.Direct, exited) },
	}
	if r.Apache {
		installation, err := kafka.Find(ctx, r.Progress)
		if err != nil {
			return err
		}
		r.Broker.command = func(ctx context.Context) (*exec.Cmd, error) {
			return installation.Command(ctx, kafka.Config{
				Dir: dir, Node: 1, Port: ports[0], ControllerPort: ports[2], Advertise: advertised, Heap: "1g",
			})
		}
	} else {
		if r.MemoryOnly {
			dir = ""
		}
		r.Broker.command = func(context.Context) (*exec.Cmd, error) {
			return exec.Command(filepath.Join(r.Bin, "devstack"), "broker", strconv.Itoa(ports[0]), dir, advertised), nil
		}
	}
	if !r.NoProxy {
		var err error
		if r.Proxy, err = newProxy(advertised, r.Direct); err != nil {
			return err
		}
	}
	if err := r.Broker.Start(ctx); err != nil {
		return err
	}
	return broker.CreateTopics(ctx, r.Direct)
}

// Database is one database with the whole schema; the members are URIs of its roles.
type Database struct{ Owner, App, Worker, Super string }

// NewDatabase makes a database of its own.
func (r *Rig) NewDatabase(ctx context.Context) (Database, error) {
	const password = "apipay-rig"
	name := "rig_" + strings.ToLower(rand.Text()[:12])
	super := r.cluster.DSN("", "", name)
	if err := execute(ctx, r.cluster.DSN("", "", "postgres"), "CREATE DATABASE "+name); err != nil {
		return Database{}, err
	}
	if err := execute(ctx, super, migrations.BootstrapSQL); err != nil {
		return Database{}, fmt.Errorf("bootstrap.sql: %w", err)
	}
	for _, role := range []string{"apipay_owner", "apipay_app", "apipay_worker", "apipay_admin"} {
		if err := execute(ctx, super, fmt.Sprintf("ALTER ROLE %s LOGIN PASSWORD '%s'", role, password)); err != nil {
			return Database{}, err
		}
	}
	db := Database{
		Owner:  r.cluster.DSN("apipay_owner", password, name),
		App:    r.cluster.DSN("apipay_app", password, name),
		Worker: r.cluster.DSN("apipay_worker", password, name),
		Super:  super,
	}
	return db, migrations.Up(ctx, db.Owner)
}

func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// Relay makes one more replica on a database, not yet started. Program is a path below Bin.
func (r *Rig) Relay(db Database, program string, env ...string) *Process {
	r.relays++
	name := fmt.Sprintf("relay-%d", r.relays)
	return &Process{
		Name: name, LogPath: filepath.Join(r.Dir, name+".log"), orderly: syscall.SIGTERM,
		command: func(context.Context) (*exec.Cmd, error) {
			cmd := exec.Command(filepath.Join(r.Bin, program))
			cmd.Env = append([]string{
				"PATH=" + os.Getenv("PATH"), "APIPAY_DATABASE_URL=" + db.Worker, "APIPAY_KAFKA_BROKERS=" + r.Brokers,
				"APIPAY_OPS_ADDR=127.0.0.1:0",
			}, env...)
			return cmd, nil
		},
	}
}

// Load is the machine's load average, to be told beside every figure.
func Load() string {
	body, _ := os.ReadFile("/proc/loadavg") // elsewhere it is not known
	return strings.Join(strings.Fields(string(body))[:min(3, len(strings.Fields(string(body))))], " ")
}

// Sleep waits and answers false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
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
