package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/admin-api/internal/staff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The static tokens of every test: one per role, and two that are confined to tenant A.
const (
	viewerToken         = "viewer-token"
	supportToken        = "support-token"
	adminToken          = "admin-token"
	confinedToken       = "confined-support-token"
	confinedAdminToken  = "confined-admin-token"
	confinedViewerToken = "confined-viewer-token"
)

// testBundle is an admin-api on a real port, over a database of its own with two tenants.
type testBundle struct {
	db     *testdb.DB
	worker *pgxpool.Pool
	owner  *pgxpool.Pool
	url    string
	log    *logBuffer
	a, b   uuid.UUID
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	db := testdb.New(t)
	b := &testBundle{db: db, worker: db.Pool(t, db.Worker), owner: db.Pool(t, db.Owner), log: &logBuffer{}, a: id.New(), b: id.New()}
	_, err := b.owner.Exec(t.Context(), `INSERT INTO apipay.tenants (id, name) VALUES ($1, 'A'), ($2, 'B')`, b.a, b.b)
	require.NoError(t, err)
	b.url = b.serve(t, db.Pool(t, db.Admin), "")
	return b
}

func (b *testBundle) serve(t *testing.T, pool *pgxpool.Pool, issuer string) string {
	t.Helper()
	onlyA := []string{id.Format(id.Tenant, b.a)}
	entries := []map[string]any{
		{"name": "vera", "sha256": sum(viewerToken), "role": "viewer"},
		{"name": "sam", "sha256": sum(supportToken), "role": "support"},
		{"name": "ada", "sha256": sum(adminToken), "role": "admin"},
		{"name": "conny", "sha256": sum(confinedToken), "role": "support", "tenants": onlyA},
		{"name": "cora", "sha256": sum(confinedAdminToken), "role": "admin", "tenants": []string{b.a.String()}},
		{"name": "cleo", "sha256": sum(confinedViewerToken), "role": "viewer", "tenants": onlyA},
	}
	content, err := json.Marshal(entries)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tokens.json")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	logger := slog.New(slog.NewJSONHandler(b.log, nil))
	members, err := staff.New(staff.Options{
		TokensFile: path, Issuer: issuer, Audience: "apipay-admin", RoleClaim: "role",
		Logger: logger, Loop: ops.NewHealth().Loop("tokens", time.Minute),
	})
	require.NoError(t, err)
	cursors, err := httpapi.NewCursors([]byte("a key of thirty-two bytes for it"))
	require.NoError(t, err)
	policy, err := webhook.ParsePolicy("")
	require.NoError(t, err)
	handler := New(Options{
		Pool: pool, Staff: members, Cursors: cursors, Policy: policy, VisibilityDelay: time.Minute, Logger: logger,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- httpapi.Serve(ctx, listener, checked(t, handler), 5*time.Second) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

func sum(token string) string {
	hash := sha256.Sum256([]byte(token))
	return hex.EncodeToString(hash[:])
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

var client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// do sends one request; body nil sends none, a string is sent as it is.
func (b *testBundle) do(t *testing.T, token, method, path string, body any) answer {
	t.Helper()
	got, err := b.try(t.Context(), token, method, path, body)
	require.NoError(t, err)
	return got
}

func (b *testBundle) try(ctx context.Context, token, method, path string, body any) (answer, error) {
	var reader io.Reader = http.NoBody
	switch value := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(value)
	default:
		encoded, err := json.Marshal(value)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	got := answer{status: response.StatusCode, header: response.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &got.body) // pages and empty answers have none
	return got, err
}

// ok asserts the status and returns the body.
func (b *testBundle) ok(t *testing.T, token string, status int, method, path string, body any) map[string]any {
	t.Helper()
	got := b.do(t, token, method, path, body)
	require.Equal(t, status, got.status, "%s %s: %s", method, path, got.raw)
	return got.body
}

// problem asserts a problem document of the code.
func (b *testBundle) problem(t *testing.T, token string, status int, code, method, path string, body any) answer {
	t.Helper()
	got := b.do(t, token, method, path, body)
	got.requireProblem(t, status, code)
	return got
}

func (got answer) requireProblem(t *testing.T, status int, code string) {
	t.Helper()
	require.Equal(t, status, got.status, got.raw)
	require.Equal(t, httpapi.MediaTypeProblem, got.header.Get("Content-Type"))
	require.Equal(t, code, got.body["code"], got.raw)
	require.NotEmpty(t, got.header.Get("X-Request-Id"))
	require.NotContains(t, got.raw, "SQLSTATE")
}

type auditRow struct {
	Tenant  uuid.UUID
	Actor   string
	Role    string
	Action  string
	Target  string
	IP      string
	Changes string
}

// audits are the entries so far, oldest first, each of which must also lie in the outbox.
func (b *testBundle) audits(t *testing.T) []auditRow {
	t.Helper()
	rows, err := b.owner.Query(t.Context(), `
		SELECT tenant_id, actor, role, action, target, coalesce(ip, ''), changes::text
		FROM apipay.audit_log ORDER BY created_at, id`)
	require.NoError(t, err)
	defer rows.Close()
	var all []auditRow
	for rows.Next() {
		var r auditRow
		require.NoError(t, rows.Scan(&r.Tenant, &r.Actor, &r.Role, &r.Action, &r.Target, &r.IP, &r.Changes))
		all = append(all, r)
	}
	require.NoError(t, rows.Err())
	payloads, err := b.owner.Query(t.Context(), `SELECT payload FROM apipay.outbox_events WHERE topic = $1`, events.TopicAudit)
	require.NoError(t, err)
	published, err := pgx.CollectRows(payloads, pgx.RowTo[[]byte])
	require.NoError(t, err)
	require.Len(t, published, len(all), "every audit entry is an event too")
	for _, payload := range published {
		_, err := events.ParseStrict(payload)
		require.NoError(t, err, string(payload))
	}
	return all
}

func (b *testBundle) lastAudit(t *testing.T) auditRow {
	t.Helper()
	all := b.audits(t)
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

func tenantText(u uuid.UUID) string { return id.Format(id.Tenant, u) }

func items(t *testing.T, page map[string]any) []map[string]any {
	t.Helper()
	require.Equal(t, "list", page["object"])
	list, ok := page["data"].([]any)
	require.True(t, ok)
	all := make([]map[string]any, len(list))
	for i, item := range list {
		all[i] = item.(map[string]any)
	}
	return all
}

// logBuffer keeps what the service logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
