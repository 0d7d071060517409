package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82/webhook"
)

// receiver is every merchant's server: it keeps what came, by path and webhook-id.
type receiver struct {
	url string

	mu     sync.Mutex
	hooks  map[string]map[string][]hook // path -> webhook-id -> POSTs
	status int
	// delay is how long the next answer takes; nil: none.
	delay func() time.Duration
}

type hook struct {
	header http.Header
	body   []byte
}

func listen(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rx := &receiver{url: "http://" + listener.Addr().String(), hooks: map[string]map[string][]hook{}, status: http.StatusOK}
	server := &http.Server{Handler: rx, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return rx
}

func (rx *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if rx.delay != nil {
		time.Sleep(rx.delay()) // a slow receiver
	}
	rx.mu.Lock()
	defer rx.mu.Unlock()
	id := r.Header.Get("webhook-id")
	if rx.hooks[r.URL.Path] == nil {
		rx.hooks[r.URL.Path] = map[string][]hook{}
	}
	rx.hooks[r.URL.Path][id] = append(rx.hooks[r.URL.Path][id], hook{r.Header.Clone(), body})
	w.WriteHeader(rx.status)
}

// answer sets the status of every answer from now on.
func (rx *receiver) answer(status int) {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	rx.status = status
}

// at returns what came to a path, by webhook-id.
func (rx *receiver) at(path string) map[string][]hook {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	copied := map[string][]hook{}
	for id, hooks := range rx.hooks[path] {
		copied[id] = append([]hook(nil), hooks...)
	}
	return copied
}

// verify holds both signatures against libraries that know nothing of this project.
func verify(t *testing.T, h hook, secret string) {
	t.Helper()
	require.NoError(t, webhook.ValidatePayload(h.body, h.header.Get("ApiPay-Signature"), secret))
	standard, err := standardwebhooks.NewWebhook(strings.TrimPrefix(secret, "whsec_"))
	require.NoError(t, err)
	require.NoError(t, standard.Verify(h.body, h.header))
}
