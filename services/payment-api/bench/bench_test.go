//go:build bench

// Package bench measures payment-api against what its database alone can do: `make bench` runs it.
package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/app"
)

const (
	clients = 32
	rounds  = 3
	warmUp  = 2 * time.Second
	period  = 5 * time.Second
	// conns are the connections of either HTTP server's pool.
	conns = 16

	envBare    = "PAYMENT_API_BENCH_BARE"
	envService = "PAYMENT_API_BENCH_SERVICE"
	// envProfile names a file for a CPU profile of payment-api.
	envProfile = "BENCH_PROFILE"
)

var keyset = func() string {
	text, err := webhook.NewKeysetJSON()
	if err != nil {
		panic(err)
	}
	return text
}()

func TestMain(m *testing.M) {
	if dsn := os.Getenv(envBare); dsn != "" {
		serveBare(dsn)
		return
	}
	if os.Getenv(envService) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serveBare is what a read is compared with: an echo handler with one query, in a process of its own. Row level security is
// not in its way, since its role owns the table.
func serveBare(dsn string) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.GET("/bare/:id", func(c echo.Context) error {
		const query = `SELECT id, amount, currency, status, description, metadata FROM apipay.payment_intents WHERE id = $1`
		var intent struct {
			ID               uuid.UUID
			Amount           int64
			Currency, Status string
			Description      *string
			Metadata         map[string]string
		}
		err := pool.QueryRow(c.Request().Context(), query, c.Param("id")).Scan(&intent.ID, &intent.Amount, &intent.Currency,
			&intent.Status, &intent.Description, &intent.Metadata)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, intent)
	})
	if e.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // lives as long as the process
		panic(err)
	}
	fmt.Println("listening", e.Listener.Addr())
	e.HideBanner, e.HidePort = true, true
	panic(e.Start(""))
}

// TestProfile drives one kind of load for long enough to be profiled: BENCH_PROFILE=cpu.out BENCH_LOAD=get|confirm.
func TestProfile(t *testing.T) {
	if os.Getenv(envProfile) == "" {
		t.Skip("no BENCH_PROFILE")
	}
	db := testdb.New(t)
	_, key := seed(t, db.Pool(t, db.Owner))
	api := startService(t, db.App)
	once := createAndConfirm(key, "p")
	if os.Getenv("BENCH_LOAD") == "get" {
		once = read(key, "/v1/payment-intents?limit=1")
	}
	l := drive(t, api, clients, 10*time.Second, once)
	fmt.Printf("%.0f/s, p50 %v, p99 %v\n", l.perSecond, l.percentile(0.5), l.percentile(0.99))
}

// TestSpeed prints the table and fails where a target is missed.
func TestSpeed(t *testing.T) {
	db := testdb.New(t)
	owner := db.Pool(t, db.Owner)
	tenant, key := seed(t, owner)
	api := startService(t, db.App)
	bare := startBare(t, db.Owner)
	file := writeScript(t, script(t, record(t, db.App, key), tenant))

	c, err := dial(api)
	require.NoError(t, err)
	defer c.Close()
	status, body, err := c.roundTrip(request("POST", "/v1/payment-intents", key, "read", createBody))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, string(body))
	intent := idOf(body)
	raw, err := id.Parse(id.PaymentIntent, intent)
	require.NoError(t, err)
	get, bareGet := read(key, "/v1/payment-intents/"+intent), read(key, "/bare/"+raw.String())
	drive(t, api, clients, warmUp, createAndConfirm(key, "warm"))
	drive(t, api, clients, warmUp, get)
	drive(t, bare, clients, warmUp, bareGet)

	var pairs, sql, p99, reads, bares []float64
	var raws strings.Builder
	for round := range rounds {
		l := drive(t, api, clients, period, createAndConfirm(key, fmt.Sprint("r", round)))
		tps, output := pgbench(t, db.App, file, round, period)
		r, b := drive(t, api, clients, period, get), drive(t, bare, clients, period, bareGet)
		pairs, sql = append(pairs, l.perSecond), append(sql, tps)
		p99 = append(p99, float64(l.percentile(0.99).Microseconds())/1000)
		reads, bares = append(reads, r.perSecond), append(bares, b.perSecond)
		fmt.Fprintf(&raws, "round %d: create+confirm %.0f/s (confirm p50 %v, p99 %v), pgbench %.0f/s, get %.0f/s (p99 %v), bare %.0f/s (p99 %v)\n%s\n",
			round+1, l.perSecond, l.percentile(0.5), l.percentile(0.99), tps, r.perSecond, r.percentile(0.99), b.perSecond, b.percentile(0.99), output)
	}
	table := fmt.Sprintf(`payment-api, %d clients, %d CPUs, medians of %d rounds of %v
| what | payment-api | compared with | ratio | target |
|---|---|---|---|---|
| create+confirm | %.0f/s | the same SQL by pgbench: %.0f/s | %.2f | >= 0.5 |
| GET by id | %.0f/s | a bare echo handler with one query: %.0f/s | %.2f | >= 0.4 |
| confirm, p99 | %.1f ms | | | < 100 ms |
`, clients, runtime.NumCPU(), rounds, period, median(pairs), median(sql), median(pairs)/median(sql),
		median(reads), median(bares), median(reads)/median(bares), median(p99))
	fmt.Print(table)
	keep(t, table+"\n"+raws.String())
	require.GreaterOrEqual(t, median(pairs)/median(sql), 0.5, "create+confirm")
	require.GreaterOrEqual(t, median(reads)/median(bares), 0.4, "GET by id")
	require.Less(t, median(p99), 100.0, "p99 of confirm in ms")
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// keep writes what was measured to where BENCH_OUT says.
func keep(t *testing.T, text string) {
	t.Helper()
	if dir := os.Getenv("BENCH_OUT"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "payment-api.txt"), []byte(text), 0o644)) //nolint:gosec // for everybody to read
	}
}

func seed(t *testing.T, owner *pgxpool.Pool) (tenant uuid.UUID, key string) {
	t.Helper()
	tenant = id.New()
	_, err := owner.Exec(t.Context(), `INSERT INTO apipay.tenants (id, name) VALUES ($1, 'bench')`, tenant)
	require.NoError(t, err)
	made := apikey.New(false)
	hash := made.Hash()
	_, err = owner.Exec(t.Context(), `INSERT INTO apipay.api_keys (id, tenant_id, livemode, hash, last4, scopes) VALUES ($1, $2, false, $3, $4, $5)`,
		id.New(), tenant, hash[:], made.Last4(), apikey.Scopes())
	require.NoError(t, err)
	return tenant, made.Reveal()
}

// serve is payment-api as its main runs it.
func serve() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if name := os.Getenv(envProfile); name != "" {
		file, err := os.Create(name) //nolint:gosec // chosen by whoever runs the benchmark
		if err != nil {
			panic(err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			panic(err)
		}
		defer pprof.StopCPUProfile()
	}
	var environ []string
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "APIPAY_") {
			environ = append(environ, variable)
		}
	}
	if err := app.Run(ctx, environ, os.Stderr); err != nil {
		panic(err)
	}
}

// startService starts payment-api as it runs in production: a process, its log in a file.
func startService(t *testing.T, dsn string) (address string) {
	t.Helper()
	address, opsAddress := freeAddress(t), freeAddress(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log")) //nolint:gosec // a file of our own
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	command := exec.Command(os.Args[0]) //nolint:noctx // ended by the cleanup: a test's context would kill it before its profile is written
	command.Env = []string{
		envService + "=1", envProfile + "=" + os.Getenv(envProfile),
		"APIPAY_DATABASE_URL=" + dsn, "APIPAY_SECRETS_KEYSET=" + keyset, "APIPAY_HTTP_ADDR=" + address, "APIPAY_OPS_ADDR=" + opsAddress,
	}
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + opsAddress + "/readyz") //nolint:noctx // local
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond)
	return address
}

func startBare(t *testing.T, dsn string) (address string) {
	t.Helper()
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = []string{envBare + "=" + dsn + separator + fmt.Sprintf("pool_max_conns=%d", conns)}
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	require.True(t, ok, line)
	return address
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
