package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/broker"
)

// TestRun does what docker compose up would do, with the file's own environments: Postgres is initialized, migrated, each
// service becomes healthy, and a payment in live mode reaches its merchant as a webhook.
func TestRun(t *testing.T) {
	t.Parallel()
	m := &machine{project: load(t), secrets: makeSecrets(t), replaced: t.TempDir(), hosts: map[string]string{}}
	startPostgres(t, m)
	kafka, err := broker.Start(broker.Config{})
	require.NoError(t, err)
	t.Cleanup(kafka.Close)
	m.hosts["broker:9092"] = kafka.Addrs()[0]
	for _, port := range []int{8080, 8081, 8082, 8083, 8084, 8085} {
		m.hosts[fmt.Sprintf("0.0.0.0:%d", port)] = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	}

	migrate := m.command(t, "migrate", m.project.Services["migrate"].Command...)
	out, err := migrate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range hub {
		m.run(t, name)
	}

	receiver, hooks := receive(t)
	token, err := os.ReadFile(filepath.Join(m.secrets, "admin-token-admin"))
	require.NoError(t, err)
	admin, payment := "http://"+m.hosts["0.0.0.0:8081"], "http://"+m.hosts["0.0.0.0:8080"]
	tenant := call(t, string(token), http.StatusCreated, admin+"/admin/v1/tenants", map[string]any{"name": "Shop"})
	key, ok := call(t, string(token), http.StatusCreated, fmt.Sprintf("%s/admin/v1/tenants/%s/api-keys", admin, tenant["id"]), map[string]any{"livemode": true})["secret"].(string)
	require.True(t, ok)
	call(t, key, http.StatusCreated, payment+"/v1/webhook-endpoints", map[string]any{"url": receiver, "enabled_events": []string{"payment_intent.succeeded"}})
	intent := call(t, key, http.StatusCreated, payment+"/v1/payment-intents",
		map[string]any{"amount": 1999, "currency": "EUR", "payment_method": "pm_card_visa", "confirm": true})
	require.Equal(t, "succeeded", intent["status"])
	select {
	case body := <-hooks:
		require.Contains(t, string(body), fmt.Sprint(intent["id"]))
	case <-time.After(15 * time.Second):
		t.Fatal("no webhook came")
	}
}

// receive is a merchant's server.
func receive(t *testing.T) (string, <-chan []byte) {
	t.Helper()
	hooks := make(chan []byte, 10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			hooks <- body
		}
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return "http://" + listener.Addr().String() + "/hook", hooks
}

var client = http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func call(t *testing.T, token string, want int, url string, request any) map[string]any {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprint(time.Now().UnixNano()))
	response, err := client.Do(req)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, want, response.StatusCode, "%s: %s", url, content)
	answer := map[string]any{}
	require.NoError(t, json.Unmarshal(content, &answer))
	return answer
}
