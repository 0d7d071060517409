package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/services/payment-api/internal/app"
)

// process is the whole service, run in this process.
type process struct {
	http, ops string
	logs      *syncBuffer
	stop      context.CancelFunc
	ended     chan error
}

// start runs the service on free ports until it is ready. It is stopped when the test ends.
func start(t *testing.T, b *testBundle, environ ...string) *process {
	t.Helper()
	return startWith(t, b, &syncBuffer{}, environ...)
}

func startWith(t *testing.T, b *testBundle, logs *syncBuffer, environ ...string) *process {
	t.Helper()
	p := &process{logs: logs, ended: make(chan error, 1)}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	environ = append([]string{"APIPAY_DATABASE_URL=" + b.db.App, "APIPAY_SECRETS_KEYSET=" + testKeyset,
		"APIPAY_HTTP_ADDR=127.0.0.1:0", "APIPAY_OPS_ADDR=127.0.0.1:0"}, environ...)
	go func() { p.ended <- app.Run(ctx, environ, p.logs) }()
	t.Cleanup(func() { require.NoError(t, p.end()) })
	require.Eventually(t, func() bool {
		for line := range strings.Lines(p.logs.String()) {
			var entry struct{ Msg, HTTP, Ops string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "service.started" {
				p.http, p.ops = entry.HTTP, entry.Ops
				return true
			}
		}
		return false
	}, 15*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return p.ready() == http.StatusOK }, 15*time.Second, 10*time.Millisecond)
	return p
}

func (p *process) ready() int {
	response, err := client.Get("http://" + p.ops + "/readyz")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// end stops the process, once, and answers how it ended.
func (p *process) end() error {
	p.stop()
	err, running := <-p.ended
	if running {
		close(p.ended)
	}
	return err
}

func TestRun_RefusesToStart(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = busy.Close() })
	bypassing := withRole(t, db, `CREATE ROLE apipay_test_bypass LOGIN PASSWORD 'x' BYPASSRLS`, "apipay_test_bypass")
	wrongPassword := withPassword(t, db.App, "s3cret-wrong")
	for name, c := range map[string]struct {
		environ []string
		message string
	}{
		"no DSN":                   {[]string{"APIPAY_DATABASE_URL="}, "APIPAY_DATABASE_URL"},
		"malformed DSN":            {[]string{"APIPAY_DATABASE_URL=postgres://u:s3cret%zz@h/d"}, "APIPAY_DATABASE_URL does not parse"},
		"superuser":                {[]string{"APIPAY_DATABASE_URL=" + db.Super}, "superuser"},
		"BYPASSRLS":                {[]string{"APIPAY_DATABASE_URL=" + bypassing}, "BYPASSRLS"},
		"the owner":                {[]string{"APIPAY_DATABASE_URL=" + db.Owner}, "apipay_app"},
		"another service's role":   {[]string{"APIPAY_DATABASE_URL=" + db.Worker}, "apipay_app"},
		"wrong password":           {[]string{"APIPAY_DATABASE_URL=" + wrongPassword}, "password"},
		"unmigrated database":      {[]string{"APIPAY_DATABASE_URL=" + testdb.Empty(t).App}, ""},
		"unknown name":             {[]string{"APIPAY_DATABSE_URL=x"}, "did you mean APIPAY_DATABASE_URL"},
		"no key set":               {[]string{"APIPAY_SECRETS_KEYSET="}, "APIPAY_SECRETS_KEYSET"},
		"key set of no keys":       {[]string{"APIPAY_SECRETS_KEYSET={}"}, "APIPAY_SECRETS_KEYSET"},
		"timeout above the lease":  {[]string{"APIPAY_GATEWAY_TIMEOUT=90s"}, "APIPAY_GATEWAY_TIMEOUT"},
		"no duration":              {[]string{"APIPAY_GATEWAY_TIMEOUT=10"}, "APIPAY_GATEWAY_TIMEOUT"},
		"negative lease":           {[]string{"APIPAY_IDEMPOTENCY_LEASE=-1s"}, "APIPAY_IDEMPOTENCY_LEASE"},
		"zero TTL":                 {[]string{"APIPAY_IDEMPOTENCY_TTL=0s"}, "APIPAY_IDEMPOTENCY_TTL"},
		"sandbox without DEV":      {[]string{"APIPAY_GATEWAY_LIVE=sandbox"}, "APIPAY_DEV=1"},
		"unknown gateway":          {[]string{"APIPAY_GATEWAY_LIVE=acme", "APIPAY_DEV=1"}, "APIPAY_GATEWAY_LIVE=acme"},
		"CIDR with bits behind it": {[]string{"APIPAY_WEBHOOK_ALLOW_CIDRS=10.1.2.3/8"}, "APIPAY_WEBHOOK_ALLOW_CIDRS"},
		"no currency":              {[]string{"APIPAY_AMOUNT_MIN=ZZZ=5"}, "APIPAY_AMOUNT_MIN"},
		"amount twice":             {[]string{"APIPAY_AMOUNT_MIN=EUR=5,EUR=6"}, "APIPAY_AMOUNT_MIN"},
		"negative rate":            {[]string{"APIPAY_RATE_LIMIT_RPS=-1"}, "APIPAY_RATE_LIMIT_RPS"},
		"not a number":             {[]string{"APIPAY_RATE_LIMIT_RPS=NaN"}, "APIPAY_RATE_LIMIT_RPS"},
		"log level":                {[]string{"APIPAY_LOG_LEVEL=loud"}, "APIPAY_LOG_LEVEL"},
		"port in use":              {[]string{"APIPAY_HTTP_ADDR=" + busy.Addr().String()}, "APIPAY_HTTP_ADDR"},
		"ops port in use":          {[]string{"APIPAY_OPS_ADDR=" + busy.Addr().String()}, "APIPAY_OPS_ADDR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			environ := append([]string{"APIPAY_DATABASE_URL=" + db.App, "APIPAY_SECRETS_KEYSET=" + testKeyset,
				"APIPAY_HTTP_ADDR=127.0.0.1:0", "APIPAY_OPS_ADDR=127.0.0.1:0"}, c.environ...)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // one that starts after all
			defer cancel()
			err := app.Run(ctx, environ, io.Discard)
			require.Error(t, err)
			require.Contains(t, err.Error(), c.message)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "apipay-test")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func withRole(t *testing.T, db *testdb.DB, create, name string) string {
	t.Helper()
	super := db.Pool(t, db.Super)
	_, err := super.Exec(t.Context(), create)
	if err != nil {
		require.Contains(t, err.Error(), "42710") // a test process beside this one has made it
	}
	_, err = super.Exec(t.Context(), "GRANT CONNECT ON DATABASE "+db.Name+" TO "+name)
	require.NoError(t, err)
	u, err := url.Parse(db.App)
	require.NoError(t, err)
	u.User = url.UserPassword(name, "x")
	return u.String()
}

func withPassword(t *testing.T, dsn, password string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

// It serves with no Kafka anywhere, stays ready while its pool is full, drains on its way out, and leaves nothing running.
func TestRun_ServesAndDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := start(t, b, "APIPAY_DATABASE_URL="+withParam(t, b.db.App, "pool_max_conns", "2"))
	m := merchant{"http://" + p.http, b.key(t, b.tenant(t), false)}
	require.Equal(t, http.StatusCreated, m.endpoint(t).status)

	// A request that is in flight when the end comes is answered.
	intent := m.call(t, http.MethodPost, "/v1/payment-intents", body{"amount": 1000, "currency": "EUR", "payment_method": "pm_card_slow"}, "Idempotency-Key", "c")
	require.Equal(t, http.StatusCreated, intent.status, string(intent.body))
	slow := make(chan answer, 1)
	go func() {
		a, _ := m.try(t, http.MethodPost, "/v1/payment-intents/"+intent.str("id")+"/confirm", nil, "Idempotency-Key", "s")
		slow <- a
	}()
	require.Eventually(t, func() bool {
		return query[bool](t, b, `SELECT EXISTS (SELECT FROM apipay.payment_attempts WHERE status = 'started')`)
	}, 10*time.Second, 5*time.Millisecond)
	p.stop()
	stopped := time.Now()
	require.Eventually(t, func() bool { return p.ready() == http.StatusServiceUnavailable }, time.Second, 5*time.Millisecond, "unready first")
	confirmed := <-slow
	require.Equal(t, http.StatusOK, confirmed.status, string(confirmed.body))
	require.Equal(t, "succeeded", confirmed.json["status"])
	require.NoError(t, p.end())
	require.Less(t, time.Since(stopped), 15*time.Second)
	require.Contains(t, p.logs.String(), "http.request")
	require.NotContains(t, p.logs.String(), m.key)
}

func TestConfig_ReadsOnlyPublishedNames(t *testing.T) {
	t.Parallel()
	names := config.Names(app.Config{})
	require.LessOrEqual(t, len(names), 20)
	for _, variable := range config.Variables {
		require.Equal(t, slices.Contains(variable.Services, "payment-api"), slices.Contains(names, variable.Name), variable.Name)
	}
	for _, name := range names {
		require.True(t, slices.ContainsFunc(config.Variables, func(v config.Variable) bool { return v.Name == name }), name)
	}
}
