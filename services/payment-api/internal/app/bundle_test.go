package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/apidoc/apidoctest"
	"apipay.io/hub/services/payment-api/internal/app"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// testBundle is one database and one replica of the service in front of it.
type testBundle struct {
	db    *testdb.DB
	owner *pgxpool.Pool
	url   string
	logs  *syncBuffer
}

var testKeyset = func() string {
	text, err := webhook.NewKeysetJSON()
	if err != nil {
		panic(err)
	}
	return text
}()

func setup(t *testing.T, environ ...string) *testBundle {
	t.Helper()
	db := testdb.New(t)
	b := &testBundle{db: db, owner: db.Pool(t, db.Owner), logs: &syncBuffer{}}
	b.url = b.replica(t, environ...)
	return b
}

// replica starts another instance of the service on the same database.
func (b *testBundle) replica(t *testing.T, environ ...string) string {
	t.Helper()
	api := newAPI(t, b, environ...)
	stopped := runLoops(t, api)
	server := httptest.NewServer(apidoctest.Handler(t, api.Handler()))
	t.Cleanup(func() { server.Close(); stopped() })
	return server.URL
}

func newAPI(t *testing.T, b *testBundle, environ ...string) *app.API {
	t.Helper()
	environ = append([]string{"APIPAY_DATABASE_URL=" + b.db.App, "APIPAY_SECRETS_KEYSET=" + testKeyset}, environ...)
	cfg, err := config.Load[app.Config](environ)
	require.NoError(t, err)
	api, err := app.New(cfg, b.db.Pool(t, cfg.DatabaseURL), ops.NewHealth(), slog.New(slog.NewJSONHandler(b.logs, nil)))
	require.NoError(t, err)
	return api
}

// runLoops runs the service's loops; the answer stops them and waits.
func runLoops(t *testing.T, api *app.API) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- ops.Group(ctx, api.Loops()...) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the loops ended: %v", err)
		}
	}
}

func (b *testBundle) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// withParam is a DSN with one parameter more.
func withParam(t testing.TB, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	values := u.Query()
	values.Set(name, value)
	u.RawQuery = values.Encode()
	return u.String()
}

func query[T any](t testing.TB, b *testBundle, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, b.owner.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

func (b *testBundle) tenant(t testing.TB) uuid.UUID {
	t.Helper()
	tenantID := id.New()
	b.exec(t, `INSERT INTO apipay.tenants (id, name) VALUES ($1, $2)`, tenantID, "tenant "+tenantID.String())
	return tenantID
}

// key makes an API key of the tenant; without scopes it has all of them.
func (b *testBundle) key(t testing.TB, tenantID uuid.UUID, livemode bool, scopes ...string) string {
	t.Helper()
	if scopes == nil {
		scopes = apikey.Scopes()
	}
	key := apikey.New(livemode)
	hash := key.Hash()
	b.exec(t, `INSERT INTO apipay.api_keys (id, tenant_id, livemode, hash, last4, scopes) VALUES ($1, $2, $3, $4, $5, $6)`,
		id.New(), tenantID, livemode, hash[:], key.Last4(), scopes)
	return key.Reveal()
}

func hashOf(t testing.TB, key string) []byte {
	t.Helper()
	_, hash, err := apikey.Parse(key)
	require.NoError(t, err)
	return hash[:]
}

// merchant is a caller with one key.
type merchant struct {
	url string
	key string
}

func (b *testBundle) merchant(t testing.TB) merchant {
	t.Helper()
	return merchant{b.url, b.key(t, b.tenant(t), false)}
}

type answer struct {
	status int
	header http.Header
	body   []byte
	json   map[string]any
}

func (a answer) code() string { text, _ := a.json["code"].(string); return text }

func (a answer) str(name string) string { text, _ := a.json[name].(string); return text }

func (a answer) pointers() (all []string) {
	list, _ := a.json["errors"].([]any)
	for _, one := range list {
		pointer, _ := one.(map[string]any)["pointer"].(string)
		all = append(all, pointer)
	}
	return all
}

func (a answer) data() (all []map[string]any) {
	list, _ := a.json["data"].([]any)
	for _, one := range list {
		all = append(all, one.(map[string]any))
	}
	return all
}

var client = &http.Client{Timeout: 30 * time.Second}

// call sends one request. body is sent as JSON unless it is nil; a string or []byte goes as it is.
func (m merchant) call(t testing.TB, method, path string, body any, headers ...string) answer {
	t.Helper()
	a, err := m.try(t, method, path, body, headers...)
	require.NoError(t, err)
	return a
}

func (m merchant) try(t testing.TB, method, path string, body any, headers ...string) (answer, error) {
	t.Helper()
	var reader io.Reader
	switch v := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(v)
	case []byte:
		reader = bytes.NewReader(v)
	default:
		text, err := json.Marshal(v)
		require.NoError(t, err)
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, m.url+path, reader)
	require.NoError(t, err)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if m.key != "" {
		request.Header.Set("Authorization", "Bearer "+m.key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, header: response.Header}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return answer{}, err
	}
	if method != http.MethodHead && strings.Contains(response.Header.Get("Content-Type"), "json") {
		require.NoError(t, json.Unmarshal(a.body, &a.json), string(a.body))
	}
	return a, nil
}

// refused asserts a problem: the status, the code, and the pointers of its errors if any are given.
func refused(t testing.TB, a answer, status int, code string, pointers ...string) {
	t.Helper()
	require.Equal(t, status, a.status, string(a.body))
	require.Equal(t, code, a.code(), string(a.body))
	require.Equal(t, float64(status), a.json["status"])
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, a.header.Get("X-Request-Id"), a.json["request_id"])
	if pointers != nil {
		require.Equal(t, pointers, a.pointers(), string(a.body))
	}
}

type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
