package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/stack"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

func (h *hub) processes(t *testing.T) []stack.ProcessInfo {
	t.Helper()
	h.refresh(t)
	return h.Processes
}

// environOf is a service's environment as stack.json records it, with some names set otherwise.
func (h *hub) environOf(t *testing.T, service string, other ...string) []string {
	t.Helper()
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "APIPAY_") {
			environ = append(environ, entry)
		}
	}
	ports := freePorts(t, 2)
	for name, value := range h.Env[strings.ReplaceAll(service, "-", "_")] {
		environ = append(environ, name+"="+value)
	}
	environ = append(environ, "APIPAY_OPS_ADDR="+ports[0], "APIPAY_LOG_LEVEL=debug")
	if service == "payment-api" || service == "admin-api" {
		environ = append(environ, "APIPAY_HTTP_ADDR="+ports[1])
	}
	return append(environ, other...)
}

// output starts a service and answers all that it printed until it ended, or until a time is over.
func output(t *testing.T, service string, environ []string, limit time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(repository, "bin", service))
	command.Env = environ
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestSecretsInDSN: a password that makes the DSN unparsable, and one that is wrong, are in nothing that a service prints.
func TestSecretsInDSN(t *testing.T) {
	h := start(t)
	for _, service := range serviceNames {
		right := h.Env[strings.ReplaceAll(service, "-", "_")]["APIPAY_DATABASE_URL"]
		at := strings.LastIndex(right, "@")
		user := right[:strings.LastIndex(right[:at], ":")]
		for _, password := range []string{"p@ss/%zzMARKER", "wrongMARKER"} {
			out, err := output(t, service, h.environOf(t, service, "APIPAY_DATABASE_URL="+user+":"+password+right[at:]), 15*time.Second)
			require.Error(t, err, "%s starts with the password %s", service, password)
			require.NotContains(t, out, "MARKER", "%s, %s", service, password)
			require.NotContains(t, out, "p@ss", "%s, %s", service, password)
			require.NotEmpty(t, out)
		}
	}
	// Kafka refuses, or hangs up: neither the user's name's password nor its hash is told.
	for _, service := range []string{"outbox-relay", "webhook-dispatcher"} {
		for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
			out, _ := output(t, service, h.environOf(t, service, "APIPAY_KAFKA_SASL_MECHANISM="+mechanism,
				"APIPAY_KAFKA_SASL_USERNAME=somebody", "APIPAY_KAFKA_SASL_PASSWORD=kafkaMARKER"), 2*time.Second)
			require.NotContains(t, out, "MARKER", "%s, %s", service, mechanism)
			require.Contains(t, out, `"level"`, "it ran")
		}
	}
}

// failingReceivers are endpoints that fail in every way that is quick; the address is of the host and path.
func failingReceivers(t *testing.T) map[string]string {
	t.Helper()
	urls := map[string]string{
		"refused": "http://" + freePorts(t, 1)[0], "nxdomain": "http://nowhere.invalid", "private": "http://10.255.255.1",
	}
	serve := func(name string, answer func(conn net.Conn)) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					answer(conn)
				}()
			}
		}()
		urls[name] = "http://" + listener.Addr().String()
		urls[name+" tls"] = "https://" + listener.Addr().String()
	}
	read := func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }
	serve("reset", func(conn net.Conn) { read(conn); _ = conn.(*net.TCPConn).SetLinger(0) })
	serve("hang up", read)
	serve("no http", func(conn net.Conn) { read(conn); _, _ = io.WriteString(conn, "what?\r\n\r\n") })
	serve("redirect", func(conn net.Conn) {
		read(conn)
		_, _ = io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")
	})
	serve("status", func(conn net.Conn) {
		read(conn)
		_, _ = io.WriteString(conn, "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
	})
	serve("hang", func(conn net.Conn) { read(conn); time.Sleep(3 * time.Second) }) // longer than the attempt's limit
	return urls
}

// TestSecretsOfEndpoints: an endpoint with user information is refused; one with a token in its query fails in every way, with
// all logs at debug: neither the token, nor an API key, nor a signing secret is in a log, an attempt, a span or a metric, and
// the admin API shows the token in the endpoint's address only.
func TestSecretsOfEndpoints(t *testing.T) {
	c := collect(t)
	h := start(t, append(c.environ(), "APIPAY_LOG_LEVEL=debug", "APIPAY_WEBHOOK_RETRY_SCHEDULE=10m", "APIPAY_WEBHOOK_TIMEOUT=1s", "APIPAY_WEBHOOK_LEASE=21s")...)
	staff := h.staff(t)
	merchant := h.merchant(t, staff, "Secretive")
	for _, url := range []string{"https://user:pwMARKER@hooks.example.com/hook?token=s", "http://userMARKER@127.0.0.1:9/hook"} {
		status, answer, err := merchant.do(t.Context(), "POST", "/v1/webhook-endpoints", "", object{"url": url, "enabled_events": []string{"*"}})
		require.NoError(t, err)
		require.Equal(t, http.StatusUnprocessableEntity, status)
		require.NotContains(t, fmt.Sprint(answer), "MARKER")
	}
	var secrets []string
	receivers := failingReceivers(t)
	receivers["works"] = listen(t).url // told of at debug
	for name, base := range receivers {
		status, answer, err := merchant.do(t.Context(), "POST", "/v1/webhook-endpoints", "",
			object{"url": base + "/hookMARKER?token=tokenMARKER", "enabled_events": []string{"payment_intent.created"}})
		require.NoError(t, err)
		if name == "private" {
			require.Equal(t, http.StatusUnprocessableEntity, status)
			continue
		}
		require.Equal(t, http.StatusCreated, status, "%s: %v", name, answer)
		secrets = append(secrets, answer.text("secret"))
	}
	merchant.must(t, http.StatusCreated, "POST", "/v1/payment-intents", "keyMARKER", object{"amount": 1000, "currency": "EUR", "description": "bodyMARKER"})
	// Wrong keys and tokens, in every place where somebody might put one.
	wrong := newClient("apk_live_wrongMARKER", []string{h.URLs.PaymentAPI})
	t.Cleanup(wrong.close)
	wrong.must(t, http.StatusUnauthorized, "GET", "/v1/payment-intents", "", nil)
	_, _, err := wrong.do(t.Context(), "GET", "/v1/payment-intents?api_key=queryMARKER", "", nil)
	require.NoError(t, err)
	intruder := newClient("adm_wrongMARKER", []string{h.URLs.AdminAPI})
	t.Cleanup(intruder.close)
	intruder.must(t, http.StatusUnauthorized, "GET", "/admin/v1/tenants", "", nil)

	h.eventually(t, 25*time.Second, len(secrets), `SELECT count(*) FROM apipay.outbound_webhook_attempts`)
	require.Equal(t, len(secrets)-1, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE outcome = 'failed'`))
	for _, column := range []string{"error_class", "response_excerpt", "phases_ms::text", "remote_ip::text"} {
		require.Zero(t, h.count(t, `SELECT count(*) FROM apipay.outbound_webhook_attempts WHERE `+column+` LIKE '%MARKER%'`), column)
	}
	list := staff.must(t, http.StatusOK, "GET", "/admin/v1/webhook-deliveries?limit=100", "", nil)
	for _, one := range list["data"].([]any) {
		delivery := object(one.(map[string]any))
		delete(delivery, "endpoint_url")
		require.NotContains(t, fmt.Sprint(delivery), "MARKER")
	}
	markers := append(slices.Clone(secrets), "MARKER", merchant.token, staff.token, h.Demo.TestKey)
	for _, environ := range h.Env {
		dsn := environ["APIPAY_DATABASE_URL"]
		at := strings.LastIndex(dsn, "@")
		markers = append(markers, dsn[strings.LastIndex(dsn[:at], ":")+1:at])
	}
	logs, err := filepath.Glob(filepath.Join(h.dir, "logs/*.log"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(logs), len(serviceNames))
	seen := map[string]string{"what was pushed": c.everything()}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		seen[filepath.Base(path)] = string(content)
	}
	for _, service := range serviceNames {
		seen["/metrics of "+service] = h.page(t, service, "/metrics")
		seen["/readyz of "+service] = h.page(t, service, "/readyz")
	}
	// The two APIs have nothing to say at debug while all is well.
	for _, service := range []string{"outbox-relay", "webhook-dispatcher"} {
		require.Contains(t, seen[service+".log"], `"level":"DEBUG"`, "the log of %s is at debug", service)
	}
	for where, text := range seen {
		for _, marker := range markers {
			if at := strings.Index(text, marker); at >= 0 {
				t.Errorf("%s: a secret is told: %q", where, text[max(0, at-200):min(len(text), at+20)])
			}
		}
	}
}
