package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v82/webhook"
)

const (
	pathGood    = "/webhooks/good"
	pathFailing = "/webhooks/failing"
)

// receiver is a merchant's server: one path works, the other answers 500 until it is repaired.
type receiver struct {
	url    string
	server *http.Server

	mu       sync.Mutex
	repaired bool
	hooks    []hook
	arrived  chan struct{} // closed and replaced at every arrival
}

// hook is one POST, as it came.
type hook struct {
	path   string
	header http.Header
	body   []byte
	status int // that was answered
}

func listen() (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	rx := &receiver{url: "http://" + listener.Addr().String(), arrived: make(chan struct{})}
	rx.server = &http.Server{Handler: rx, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = rx.server.Serve(listener) }()
	return rx, nil
}

func (rx *receiver) close() { _ = rx.server.Close() }

// ServeHTTP keeps what came and answers.
func (rx *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	rx.mu.Lock()
	status := http.StatusOK
	if r.URL.Path == pathFailing && !rx.repaired {
		status = http.StatusInternalServerError
	}
	rx.hooks = append(rx.hooks, hook{path: r.URL.Path, header: r.Header.Clone(), body: body, status: status})
	close(rx.arrived)
	rx.arrived = make(chan struct{})
	rx.mu.Unlock()
	w.WriteHeader(status)
}

func (rx *receiver) repair() {
	rx.mu.Lock()
	defer rx.mu.Unlock()
	rx.repaired = true
}

// wait returns the first POST to path that is wanted, now or later.
func (rx *receiver) wait(ctx context.Context, path string, wanted func(hook) bool) (hook, error) {
	for {
		rx.mu.Lock()
		hooks, arrived := rx.hooks, rx.arrived
		rx.mu.Unlock()
		for _, h := range hooks {
			if h.path == path && wanted(h) {
				return h, nil
			}
		}
		select {
		case <-ctx.Done():
			return hook{}, fmt.Errorf("waiting for a webhook at %s (%d POSTs came): %w", path, len(hooks), ctx.Err())
		case <-arrived:
		}
	}
}

// verify holds both signatures against libraries that know nothing of this project.
func verify(h hook, secret string) error {
	if err := webhook.ValidatePayload(h.body, h.header.Get("ApiPay-Signature"), secret); err != nil {
		return fmt.Errorf("verifying ApiPay-Signature: %w", err)
	}
	standard, err := standardwebhooks.NewWebhook(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return fmt.Errorf("reading the secret: %w", err)
	}
	if err := standard.Verify(h.body, h.header); err != nil {
		return fmt.Errorf("verifying webhook-signature: %w", err)
	}
	return nil
}
