package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/migrations"
	"apipay.io/hub/pkg/devstack/broker"
)

// TestMain is also every program of the stack, by the name it is started with. The services are stand-ins that serve and
// stop as services do: the stack's own work is what is tested here, and the real ones are in e2e.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	program, ok := programs[name]
	if !ok {
		goleak.VerifyTestMain(m)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := program(ctx, name); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

var programs = map[string]func(ctx context.Context, name string) error{
	PaymentAPI: standIn, AdminAPI: standIn, OutboxRelay: standIn, WebhookDispatcher: standIn,
	"migrate": func(ctx context.Context, _ string) error {
		return migrations.Up(ctx, os.Getenv("APIPAY_DATABASE_URL"))
	},
	"devstack": func(ctx context.Context, _ string) error { return standInDevstack(ctx) },
}

func standIn(ctx context.Context, name string) error {
	if os.Getenv("STANDIN_BROKEN") == name {
		return fmt.Errorf("APIPAY_SOMETHING cannot be used")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/payment-intents", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	mux.HandleFunc("POST /admin/v1/tenants", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"id": "tnt_%d"}`, time.Now().UnixNano())
	})
	mux.HandleFunc("POST /admin/v1/tenants/{id}/api-keys", func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Livemode bool }
		_ = json.NewDecoder(r.Body).Decode(&request)
		fmt.Fprintf(w, `{"secret": "apk_%s_x"}`, map[bool]string{false: "test", true: "live"}[request.Livemode])
	})
	failed := make(chan error, 2)
	for _, variable := range []string{"APIPAY_HTTP_ADDR", "APIPAY_OPS_ADDR"} {
		if address := os.Getenv(variable); address != "" {
			go func() { failed <- http.ListenAndServe(address, mux) }()
		}
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func standInDevstack(ctx context.Context) error {
	if os.Args[1] == "broker" {
		port, _ := strconv.Atoi(os.Args[2])
		b, err := broker.Start(broker.Config{Port: port, DataDir: os.Args[3]})
		if err != nil {
			return err
		}
		defer b.Close()
		<-ctx.Done()
		return nil
	}
	cfg, err := ConfigFromEnv()
	if err != nil {
		return err
	}
	cfg.BinDir = filepath.Dir(os.Args[0]) // the program behind the link is elsewhere
	s, err := Up(ctx, cfg, io.Discard)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	s.Stop()
	return nil
}

var nextOffset atomic.Int32

const holdPort = 8099

// setup is a stack of its own: a folder, programs, and ports that nobody uses.
func setup(t *testing.T) Config {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	// Not t.TempDir: as root, Postgres's user must be able to enter.
	dir, err := os.MkdirTemp("", "apipay-stack-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	cfg := Config{
		Dir: filepath.Join(dir, "dev"), BinDir: filepath.Join(dir, "bin"), Environ: os.Environ(),
		Replicas: map[string]int{PaymentAPI: 1, AdminAPI: 1, OutboxRelay: 2, WebhookDispatcher: 1},
	}
	require.NoError(t, os.Mkdir(cfg.BinDir, 0o755))
	for name := range programs {
		require.NoError(t, os.Symlink(program, cfg.program(name)))
	}
	for {
		cfg.PortOffset = 7000 + 100*int(nextOffset.Add(1))
		require.LessOrEqual(t, cfg.PortOffset, maxPortOffset, "no free ports")
		// A port that no stack uses is this test's hold on the offset: other runs of these tests choose theirs at the same time.
		hold, err := net.Listen("tcp", address(holdPort+cfg.PortOffset))
		if err != nil {
			continue
		}
		if cfg.checkPorts() == nil {
			t.Cleanup(func() { hold.Close() })
			break
		}
		hold.Close()
	}
	t.Cleanup(func() {
		require.NoError(t, Clean(cfg, io.Discard))
		require.NoError(t, os.RemoveAll(dir))
	})
	return cfg
}

func TestStack(t *testing.T) {
	t.Parallel()

	t.Run("DescribesItselfBySchema", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		s, err := Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		defer s.Stop()
		body, err := os.ReadFile(InfoPath(cfg))
		require.NoError(t, err)
		schema, err := jsonschema.NewCompiler().Compile("testdata/stack.schema.json")
		require.NoError(t, err)
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(document))

		info := s.Info()
		require.Len(t, info.PIDs["outbox_relay"], 2)
		require.Len(t, info.URLs.Ops["outbox_relay"], 2)
		require.Equal(t, "http://"+address(8080+cfg.PortOffset), info.URLs.PaymentAPI)
		require.NotContains(t, info.Env["payment_api"], "APIPAY_OPS_ADDR")
		for role, dsn := range info.Postgres {
			conn, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err, role)
			require.NoError(t, conn.Close(t.Context()))
		}
		for _, name := range []string{"stack.json", "secrets.json", "keyset.json", "admin-tokens.json"} {
			file, err := os.Stat(cfg.path(name))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), file.Mode().Perm(), name)
		}
	})

	t.Run("KeepsDataAndKeysOverARestart", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		s, err := Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		before := s.Info()
		execute(t, before.Postgres["owner"], "CREATE TABLE apipay.kept (id bigint)")
		s.Stop()
		require.NoFileExists(t, InfoPath(cfg))
		for name, pids := range before.PIDs {
			for _, pid := range pids {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, name)
			}
		}

		s, err = Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		defer s.Stop()
		after := s.Info()
		require.Equal(t, before.Demo, after.Demo)
		require.Equal(t, before.Postgres, after.Postgres)
		execute(t, after.Postgres["owner"], "SELECT id FROM apipay.kept")
	})

	t.Run("ActsOnOneProcess", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		s, err := Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		defer s.Stop()
		first := s.Info()
		execute(t, first.Postgres["owner"], "CREATE TABLE apipay.kept (id bigint)")

		act := func(action, target string) Info {
			_, err := Control(t.Context(), cfg, action, target)
			require.NoError(t, err)
			info, err := ReadInfo(cfg)
			require.NoError(t, err)
			return info
		}
		killed := act("kill", "outbox-relay/2")
		require.Equal(t, first.PIDs["outbox_relay"][0], killed.PIDs["outbox_relay"][0])
		require.Zero(t, killed.PIDs["outbox_relay"][1])
		require.Equal(t, Died, stateOf(killed, "outbox-relay/2"))
		started := act("start", "outbox-relay/2")
		require.NotZero(t, started.PIDs["outbox_relay"][1])
		require.Equal(t, first.URLs, started.URLs, "the ports stay")

		require.Equal(t, Died, stateOf(act("kill", "postgres"), "postgres"))
		require.Equal(t, Running, stateOf(act("start", "postgres"), "postgres"))
		execute(t, first.Postgres["owner"], "SELECT id FROM apipay.kept")

		require.Equal(t, Paused, stateOf(act("pause", "postgres"), "postgres"))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = pgx.Connect(ctx, first.Postgres["owner"])
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, Running, stateOf(act("resume", "postgres"), "postgres"))
		execute(t, first.Postgres["owner"], "SELECT id FROM apipay.kept")

		require.Equal(t, Stopped, stateOf(act("stop", "broker"), "broker"))
		require.Equal(t, Running, stateOf(act("restart", "broker"), "broker"))
		_, err = Control(t.Context(), cfg, "stop", "nobody")
		require.ErrorContains(t, err, `no process "nobody"; there are postgres, broker`)
	})

	t.Run("MarksWhatDiedAndGoesOn", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		s, err := Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		defer s.Stop()
		before := s.Info()
		require.NoError(t, syscall.Kill(before.PIDs["admin_api"][0], syscall.SIGKILL))
		require.Eventually(t, func() bool {
			info, err := ReadInfo(cfg)
			return err == nil && info.PIDs["admin_api"][0] == 0 && stateOf(info, AdminAPI) == Died
		}, 5*time.Second, 10*time.Millisecond)
		after := s.Info()
		require.Equal(t, before.PIDs["payment_api"], after.PIDs["payment_api"])
		require.NoError(t, get(before.URLs.Ops["payment_api"][0]+"/readyz"))
	})

	t.Run("RefusesASecondStackInItsFolder", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		s, err := Up(t.Context(), cfg, io.Discard)
		require.NoError(t, err)
		defer s.Stop()
		_, err = Up(t.Context(), cfg, io.Discard)
		require.ErrorIs(t, err, ErrRunning)
		require.FileExists(t, InfoPath(cfg), "the running one is not touched")
	})

	t.Run("LeavesNothingWhenAServiceDoesNotStart", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		cfg.Environ = append(cfg.Environ, "STANDIN_BROKEN="+OutboxRelay)
		_, err := Up(t.Context(), cfg, io.Discard)
		require.ErrorContains(t, err, "outbox-relay")
		require.ErrorContains(t, err, "APIPAY_SOMETHING cannot be used")
		require.NotContains(t, err.Error(), "\n")
		require.NoError(t, cfg.checkPorts())
		require.NoFileExists(t, InfoPath(cfg))
	})

	t.Run("NamesAPortInUse", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		taken := &http.Server{Addr: address(8083 + cfg.PortOffset)}
		go func() { _ = taken.ListenAndServe() }()
		defer taken.Close()
		require.Eventually(t, func() bool { return cfg.checkPorts() != nil }, 5*time.Second, time.Millisecond)
		_, err := Up(t.Context(), cfg, io.Discard)
		require.ErrorContains(t, err, fmt.Sprintf("port %d (admin-api's ops port) is in use", 8083+cfg.PortOffset))
	})

	t.Run("NamesAMissingProgram", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		require.NoError(t, os.Remove(cfg.program(AdminAPI)))
		_, err := Up(t.Context(), cfg, io.Discard)
		require.ErrorContains(t, err, "admin-api is missing; run `make build`")
	})

	t.Run("DownEndsWhatAKilledSupervisorLeft", func(t *testing.T) {
		t.Parallel()
		cfg := setup(t)
		supervisor := exec.Command(cfg.program("devstack"), "up")
		supervisor.Env = append(os.Environ(), "APIPAY_DEV_DIR="+cfg.Dir, "APIPAY_PORT_OFFSET="+strconv.Itoa(cfg.PortOffset))
		out, err := supervisor.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, supervisor.Start())
		first := make([]byte, 5)
		_, err = io.ReadFull(out, first)
		require.NoError(t, err)
		require.Equal(t, "ready", string(first))
		info, err := ReadInfo(cfg)
		require.NoError(t, err)
		require.NoError(t, supervisor.Process.Kill())
		_ = supervisor.Wait()

		_, err = Up(t.Context(), cfg, io.Discard)
		require.ErrorContains(t, err, "processes of an earlier stack still run")
		var said strings.Builder
		require.NoError(t, Down(cfg, &said))
		require.Contains(t, said.String(), "stopping payment-api (pid "+strconv.Itoa(info.PIDs["payment_api"][0])+")")
		require.NoError(t, cfg.checkPorts())
	})
}

func stateOf(info Info, label string) State {
	for _, p := range info.Processes {
		if p.Name == label {
			return p.State
		}
	}
	return ""
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
