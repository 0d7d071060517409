//go:build bench

// Package bench measures the pages of admin-api over as many deliveries as a large installation keeps: `make bench-admin` runs it.
package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/admin-api/internal/api"
	"apipay.io/hub/services/admin-api/internal/staff"
)

const (
	target = 200 * time.Millisecond
	// Each question is asked so often, and for as long, so that one that misses its target does not hold up the others.
	repeats = 30
	longest = 2 * time.Second

	everybody = "everybody"
	onlyBig   = "only-big"
	onlySmall = "only-small"
	onlyIdle  = "only-idle"
)

var cursorKey = []byte("a key of thirty-two bytes for it")

// question is one request, asked again and again. A matched of nil is no answer but an honest one.
type question struct {
	token, method, path string
	body                any
}

func TestSpeed(t *testing.T) {
	rows := 1_000_000
	if text := os.Getenv("ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	db := testdb.New(t)
	load(t, db, rows)
	server := serve(t, db)
	var table strings.Builder
	fmt.Fprintf(&table, "admin-api, %d deliveries, %d CPUs, load %s; one asker, up to %d times each; p99 <= %d ms\n", rows, runtime.NumCPU(), loadAverage(), repeats, target.Milliseconds())
	table.WriteString("| p50 ms | p99 ms | target ms | met | rows | who | request |\n|---|---|---|---|---|---|---|\n")
	missed := 0
	for _, q := range questions(t, server) {
		took, got := server.ask(t, q)
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		met := "yes"
		if p99 > target {
			met = "NO"
			missed++
		}
		line := fmt.Sprintf("| %s | %s | %d | %s | %s | %s | %s %s%s |", ms(p50), ms(p99), target.Milliseconds(), met, got, q.token, q.method,
			unescaped(q.path), bodyText(q.body))
		table.WriteString(line + "\n")
		if met == "NO" {
			t.Log(line)
		}
	}
	fmt.Fprintf(&table, "%d of the requests above miss the target; load at the end %s\n", missed, loadAverage())
	if dir := os.Getenv("BENCH_OUT"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "admin-api.txt"), []byte(table.String()), 0o644))
	}
	fmt.Println(table.String())
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func unescaped(path string) string {
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil || len(values) == 0 {
		return path
	}
	if values.Has("cursor") {
		values.Set("cursor", "...")
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name+"="+named(values.Get(name)))
	}
	slices.Sort(names)
	return path + " " + strings.Join(names, " ")
}

// named says which of the rows with a role an id is.
func named(value string) string {
	for name, prefixed := range map[string]string{
		"BIG": id.Format(id.Tenant, big), "HEALTHY": id.Format(id.Tenant, healthy), "SMALL": id.Format(id.Tenant, small), "IDLE": id.Format(id.Tenant, idle),
		"ALL_DELIVERED": id.Format(id.Endpoint, allDelivered), "ALL_FAILED": id.Format(id.Endpoint, allFailed), "MIXED": id.Format(id.Endpoint, mixed),
		"SMALL_ONE": id.Format(id.Endpoint, smallOne), "SILENT": id.Format(id.Endpoint, silent),
	} {
		if value == prefixed {
			return name
		}
	}
	return value
}

func bodyText(body any) string {
	if body == nil {
		return ""
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return ""
	}
	text := string(encoded)
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == '"' }) {
		text = strings.ReplaceAll(text, word, named(word))
	}
	return " " + text
}

// service is admin-api's handler on a real port.
type service struct {
	db      *testdb.DB
	url     string
	cursors *httpapi.Cursors
}

func serve(t *testing.T, db *testdb.DB) *service {
	t.Helper()
	hash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return hex.EncodeToString(sum[:])
	}
	content, err := json.Marshal([]map[string]any{
		{"name": "sue", "sha256": hash(everybody), "role": "support"},
		{"name": "ben", "sha256": hash(onlyBig), "role": "support", "tenants": []string{big.String()}},
		{"name": "sam", "sha256": hash(onlySmall), "role": "support", "tenants": []string{small.String()}},
		{"name": "ida", "sha256": hash(onlyIdle), "role": "support", "tenants": []string{idle.String()}},
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tokens.json")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	logger := slog.New(slog.DiscardHandler)
	members, err := staff.New(staff.Options{TokensFile: path, Logger: logger, Loop: ops.NewHealth().Loop("tokens", time.Minute)})
	require.NoError(t, err)
	cursors, err := httpapi.NewCursors(cursorKey)
	require.NoError(t, err)
	policy, err := webhook.ParsePolicy("")
	require.NoError(t, err)
	handler := api.New(api.Options{
		Pool: db.Pool(t, db.Admin), Staff: members, Cursors: cursors, Policy: policy, VisibilityDelay: time.Minute, Logger: logger,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- httpapi.Serve(ctx, listener, handler, 5*time.Second) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	return &service{db: db, url: "http://" + listener.Addr().String(), cursors: cursors}
}

// ask returns the times that the answers took, sorted, and what the last one held.
func (s *service) ask(t *testing.T, q question) (took []time.Duration, held string) {
	t.Helper()
	encoded := []byte{}
	if q.body != nil {
		var err error
		encoded, err = json.Marshal(q.body)
		require.NoError(t, err)
	}
	for began := time.Now(); len(took) < repeats && (len(took) < 3 || time.Since(began) < longest); {
		req, err := http.NewRequestWithContext(t.Context(), q.method, s.url+q.path, bytes.NewReader(encoded))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+q.token)
		if q.body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		started := time.Now()
		response, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(response.Body)
		took = append(took, time.Since(started))
		response.Body.Close()
		require.NoError(t, err)
		require.True(t, response.StatusCode == http.StatusOK || response.StatusCode == http.StatusServiceUnavailable, "%s: %s", q.path, raw)
		held = heldIn(response.StatusCode, raw)
	}
	slices.Sort(took)
	return took, held
}

func heldIn(status int, raw []byte) string {
	var answer struct {
		Data    *[]any
		Object  string
		Matched *int64
	}
	switch err := json.Unmarshal(raw, &answer); {
	case status != http.StatusOK || err != nil:
		return strconv.Itoa(status)
	case answer.Data != nil:
		return strconv.Itoa(len(*answer.Data))
	case answer.Object == "recovery" && answer.Matched == nil:
		return "unknown"
	case answer.Object == "recovery":
		return strconv.FormatInt(*answer.Matched, 10)
	}
	return "1"
}

// cursorAt is the cursor of a page that ends with this row.
func (s *service) cursorAt(list string, filter url.Values, at time.Time, last uuid.UUID) string {
	return s.cursors.Encode(httpapi.CursorScope("admin", list, "*", filter.Encode()), httpapi.Position{Time: at, ID: last})
}
