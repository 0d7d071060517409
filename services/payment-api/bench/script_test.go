//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/services/payment-api/internal/app"
)

// recorder keeps the statements of the service with their arguments.
type recorder struct {
	mu   sync.Mutex
	list []statement
}

type statement struct {
	sql  string
	args []any
}

func (r *recorder) add(sql string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, statement{sql, args})
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.add(d.SQL, d.Args)
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	r.add(d.SQL, d.Args)
}

func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// record runs one create and one confirm inside this process and answers the SQL of both, the sandbox's included.
func record(t *testing.T, dsn, key string) []statement {
	t.Helper()
	sent := &recorder{}
	poolConfig, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	poolConfig.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	require.NoError(t, err)
	defer pool.Close()
	cfg, err := config.Load[app.Config]([]string{"APIPAY_DATABASE_URL=" + dsn, "APIPAY_SECRETS_KEYSET=" + keyset})
	require.NoError(t, err)
	api, err := app.New(cfg, pool, ops.NewHealth(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	do := func(method, path, idempotencyKey, body string, status int) []byte {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+key)
		if method == http.MethodPost {
			r.Header.Set("Idempotency-Key", idempotencyKey)
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		api.Handler().ServeHTTP(w, r)
		require.Equal(t, status, w.Code, w.Body.String())
		return w.Body.Bytes()
	}
	do(http.MethodGet, "/v1/payment-intents", "", "", http.StatusOK) // the key is known from here on
	sent.list = nil
	intent := idOf(do(http.MethodPost, "/v1/payment-intents", keyA, createBody, http.StatusCreated))
	do(http.MethodPost, "/v1/payment-intents/"+intent+"/confirm", keyB, "{}", http.StatusOK)
	return sent.list
}

// The idempotency keys of the recording.
const keyA, keyB = "bench-a", "bench-b"

var placeholder = regexp.MustCompile(`\$\d+`)

// script turns recorded statements into one of pgbench: each id and key of the recording becomes one that is new in every
// round; everything else stays as it was.
func script(t *testing.T, recorded []statement, tenant uuid.UUID) string {
	t.Helper()
	ids := map[uuid.UUID]int{}
	// The ids carry this moment, as UUIDv7, so that they lie in this week's partitions.
	prefix := uuid.Must(uuid.NewV7()).String()[:24]
	literal := func(arg any) string {
		v := reflect.ValueOf(arg)
		for v.IsValid() && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return "NULL"
			}
			v = v.Elem()
		}
		if !v.IsValid() {
			return "NULL"
		}
		switch value := v.Interface().(type) {
		case uuid.UUID:
			if value == tenant {
				return "'" + value.String() + "'::uuid"
			}
			n, ok := ids[value]
			if !ok {
				n = len(ids)
				ids[value] = n
			}
			return fmt.Sprintf("('%s' || lpad(to_hex(:u::bigint + %d), 12, '0'))::uuid", prefix, n)
		case time.Duration:
			return fmt.Sprintf("'%d microseconds'::interval", value.Microseconds())
		case []byte:
			return `'\x` + hex.EncodeToString(value) + `'::bytea`
		case string:
			if value == keyA || value == keyB {
				return "('" + value + "-' || :u::bigint)"
			}
			return "'" + strings.ReplaceAll(value, "'", "''") + "'"
		}
		switch v.Kind() {
		case reflect.Map, reflect.Struct:
			text, err := json.Marshal(v.Interface())
			require.NoError(t, err)
			return "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		case reflect.String:
			return "'" + v.String() + "'"
		case reflect.Bool, reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
			return fmt.Sprint(v.Interface())
		}
		t.Fatalf("an argument of type %T", arg)
		return ""
	}
	var out strings.Builder
	out.WriteString("\\set n :n + 1\n\\set u :client_id * 1000000000 + :n * 32\n")
	transactions := 0
	for _, s := range recorded {
		sql := placeholder.ReplaceAllStringFunc(strings.Join(strings.Fields(s.sql), " "), func(p string) string {
			n, err := strconv.Atoi(p[1:])
			require.NoError(t, err)
			return literal(s.args[n-1])
		})
		if sql == "commit" {
			transactions++
		}
		out.WriteString(sql + ";\n")
	}
	require.Equal(t, 4, transactions, "create, T1, the sandbox's, T2")
	require.Less(t, len(ids), 32)
	return out.String()
}

// pgbench runs a script and answers its rate.
func pgbench(t *testing.T, dsn, file string, round int, d time.Duration) (perSecond float64, output string) {
	t.Helper()
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), pgbenchProgram(t), "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2",
		"-T", strconv.Itoa(int(d.Seconds())), "-D", "n="+strconv.Itoa(round*1_000_000), "-f", filepath.Base(file), dsn)
	command.Dir = filepath.Dir(file) // its path is printed
	command.Stdout, command.Stderr = &out, &out
	require.NoError(t, command.Run(), out.String())
	match := regexp.MustCompile(`tps = ([0-9.]+)`).FindStringSubmatch(out.String())
	require.NotNil(t, match, out.String())
	require.NotContains(t, out.String(), "ERROR")
	perSecond, err := strconv.ParseFloat(match[1], 64)
	require.NoError(t, err)
	return perSecond, out.String()
}

func pgbenchProgram(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pgbench"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	require.FailNow(t, "no pgbench on this machine: install Debian's postgresql-contrib or postgresql")
	return ""
}

func writeScript(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "create_and_confirm.sql")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
