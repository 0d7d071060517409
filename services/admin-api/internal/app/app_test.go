package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/devstack/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every variable that this service reads is published, and published as its own.
func TestConfig_IsPublished(t *testing.T) {
	t.Parallel()
	read := config.Names(Config{})
	for _, name := range read {
		found := false
		for _, v := range config.Variables {
			if v.Name == name {
				found = true
				require.Contains(t, v.Services, service, name)
			}
		}
		require.True(t, found, name)
	}
	for _, v := range config.Variables {
		for _, of := range v.Services {
			if of == service {
				require.Contains(t, read, v.Name, "published as admin-api's and not read by it")
			}
		}
	}
}

func tokensFile(t *testing.T) string {
	t.Helper()
	hash := sha256.Sum256([]byte("token"))
	path := filepath.Join(t.TempDir(), "tokens.json")
	require.NoError(t, os.WriteFile(path, []byte(`[{"name":"vera","sha256":"`+hex.EncodeToString(hash[:])+`","role":"viewer"}]`), 0o600))
	return path
}

func environ(t *testing.T, dsn string, more ...string) []string {
	t.Helper()
	return append([]string{
		"APIPAY_DATABASE_URL=" + dsn, "APIPAY_ADMIN_TOKENS_FILE=" + tokensFile(t),
		"APIPAY_HTTP_ADDR=127.0.0.1:0", "APIPAY_OPS_ADDR=127.0.0.1:0",
	}, more...)
}

func TestRun_Refusals(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`[{"name":"x"}]`), 0o600))

	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"no database":      {[]string{"APIPAY_ADMIN_TOKENS_FILE=x"}, "APIPAY_DATABASE_URL"},
		"malformed dsn":    {environ(t, "postgres://u:sekrit@[::1/x"), "APIPAY_DATABASE_URL"},
		"nobody":           {environ(t, db.Admin, "APIPAY_ADMIN_TOKENS_FILE="), "nobody could sign in"},
		"bad tokens":       {environ(t, db.Admin, "APIPAY_ADMIN_TOKENS_FILE="+bad), "entry 1"},
		"missing tokens":   {environ(t, db.Admin, "APIPAY_ADMIN_TOKENS_FILE=/nowhere"), "APIPAY_ADMIN_TOKENS_FILE"},
		"unknown name":     {environ(t, db.Admin, "APIPAY_OIDC_ISUER=x"), "APIPAY_OIDC_ISSUER?"},
		"unusable value":   {environ(t, db.Admin, "APIPAY_GATEWAY_VISIBILITY_DELAY=soon"), "APIPAY_GATEWAY_VISIBILITY_DELAY"},
		"log level":        {environ(t, db.Admin, "APIPAY_LOG_LEVEL=loud"), "APIPAY_LOG_LEVEL"},
		"cidrs":            {environ(t, db.Admin, "APIPAY_WEBHOOK_ALLOW_CIDRS=10.1.2.3/8"), "APIPAY_WEBHOOK_ALLOW_CIDRS"},
		"retention":        {environ(t, db.Admin, "APIPAY_RETENTION_AUDIT=1h"), "APIPAY_RETENTION_AUDIT"},
		"issuer over http": {environ(t, db.Admin, "APIPAY_OIDC_ISSUER=http://x", "APIPAY_OIDC_AUDIENCE=a"), "https://"},
		"issuer, no one":   {environ(t, db.Admin, "APIPAY_OIDC_ISSUER=https://x"), "APIPAY_OIDC_AUDIENCE"},
		"audience alone":   {environ(t, db.Admin, "APIPAY_OIDC_AUDIENCE=x"), "APIPAY_OIDC_ISSUER"},
		"client, no one":   {environ(t, db.Admin, "APIPAY_OIDC_CLIENT_ID=c"), "APIPAY_OIDC_ISSUER"},
		"client, no way":   {environ(t, db.Admin, "APIPAY_OIDC_ISSUER=https://x", "APIPAY_OIDC_AUDIENCE=a", "APIPAY_OIDC_CLIENT_ID=c"), "APIPAY_OIDC_REDIRECT_URL"},
		"way over http": {environ(t, db.Admin, "APIPAY_OIDC_ISSUER=https://x", "APIPAY_OIDC_AUDIENCE=a", "APIPAY_OIDC_CLIENT_ID=c",
			"APIPAY_OIDC_REDIRECT_URL=http://console.example/sign-in/callback"), "https://"},
		"port in use":      {environ(t, db.Admin, "APIPAY_HTTP_ADDR="+taken.Addr().String()), "APIPAY_HTTP_ADDR"},
		"ops port in use":  {environ(t, db.Admin, "APIPAY_OPS_ADDR="+taken.Addr().String()), "APIPAY_OPS_ADDR"},
		"superuser":        {environ(t, db.Super), "superuser"},
		"another's role":   {environ(t, db.Worker), "apipay_worker"},
		"owner":            {environ(t, db.Owner), "apipay_admin"},
		"no schema":        {environ(t, testdb.Empty(t).Admin), "migrate"},
		"wrong password":   {environ(t, strings.Replace(db.Admin, "apipay_admin:", "apipay_admin:x", 1)), "password"},
		"database unknown": {environ(t, strings.Replace(db.Admin, db.Name, "no_such_database", 1)), "no_such_database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			err := Run(ctx, test.environ, io.Discard)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "sekrit")
			require.NoError(t, ctx.Err(), "refused, not timed out")
		})
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	logs := &logBuffer{started: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- Run(ctx, environ(t, db.Admin), logs) }()
	select {
	case err := <-ran:
		t.Fatal(err)
	case <-logs.started:
	}
	api, ops := logs.address("http"), logs.address("ops")
	require.Equal(t, http.StatusOK, get(t, "http://"+ops+"/readyz"))
	require.Equal(t, http.StatusOK, get(t, "http://"+ops+"/livez"))
	require.Equal(t, http.StatusOK, get(t, "http://"+ops+"/metrics"))
	require.Equal(t, http.StatusOK, get(t, "http://"+api+"/admin/v1/tenants"))
	require.Equal(t, http.StatusOK, get(t, "http://"+api+"/"))
	require.Equal(t, http.StatusOK, get(t, "http://"+api+"/openapi.json"))
	require.Equal(t, http.StatusNotFound, get(t, "http://"+api+"/admin/v1/nothing"))
	cancel()
	require.NoError(t, <-ran)
}

func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer token")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode
}

// logBuffer keeps the log and tells when the service has started.
type logBuffer struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	started chan struct{}
	once    sync.Once
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte(`"service.started"`)) {
		l.once.Do(func() { close(l.started) })
	}
	return l.buf.Write(p)
}

func (l *logBuffer) address(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, rest, _ := strings.Cut(l.buf.String(), fmt.Sprintf("%q:\"", name))
	address, _, _ := strings.Cut(rest, `"`)
	return address
}
