package apipay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// cutting is a server that answers the first request of each connection and closes the connection after it read the second.
func cutting(t *testing.T) (address string, requests *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	requests = new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for range 2 {
					request, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					first := requests.Add(1) == 1
					if _, err := io.Copy(io.Discard, request.Body); err != nil || !first {
						return
					}
					if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"id\":\"pi\"}"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String(), requests
}

// The control: net/http with a request as a program would write it sends it twice on the same server. If it ever stops
// doing so, this test says that the precautions in transport.go can go.
func TestNetHTTPRepeats(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]io.Reader{"no body": nil, "http.NoBody": http.NoBody, "a body": strings.NewReader("{}")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, requests := cutting(t)
			client := &http.Client{Transport: &http.Transport{}}
			for i, reader := range []io.Reader{strings.NewReader("{}"), body} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, reader)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Idempotency-Key", "k1")
				answer, err := client.Do(request)
				if err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				} else if i == 0 {
					t.Fatal(err)
				}
			}
			if n := requests.Load(); n != 3 {
				t.Fatalf("net/http sent %d requests, expected its repetition: 3", n)
			}
		})
	}
}

func TestSingleSend(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *Client) error{
		"create": func(ctx context.Context, c *Client) error {
			_, err := c.PaymentIntents.Create(ctx, &PaymentIntentCreateParams{Amount: 1, Currency: "EUR"}, WithIdempotencyKey("k1"))
			return err
		},
		"cancel, empty body": func(ctx context.Context, c *Client) error {
			_, err := c.PaymentIntents.Cancel(ctx, "pi_1", WithIdempotencyKey("k1"), WithHeader("X-Idempotency-Key", "k2"))
			return err
		},
		"get": func(ctx context.Context, c *Client) error {
			_, err := c.PaymentIntents.Get(ctx, "pi_1")
			return err
		},
		"delete": func(ctx context.Context, c *Client) error { return c.WebhookEndpoints.Delete(ctx, "we_1") },
	}
	transports := map[string]*http.Transport{"default": nil, "given": {ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1}}
	for name, call := range calls {
		for kind, transport := range transports {
			t.Run(name+" with "+kind+" transport", func(t *testing.T) {
				t.Parallel()
				address, requests := cutting(t)
				options := []Option{WithBaseURL(address)}
				if transport != nil {
					options = append(options, WithTransport(transport))
				}
				client, err := New("apk_test_x", options...)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				if _, err := client.PaymentIntents.Get(t.Context(), "pi_1"); err != nil {
					t.Fatal(err)
				}
				var e *Error
				if err := call(t.Context(), client); !errors.As(err, &e) || e.Kind != KindConnection || e.Attempts != 1 {
					t.Fatalf("got %v, want a connection error after one attempt", err)
				}
				if n := requests.Load(); n != 2 {
					t.Fatalf("%d requests on the wire, want 2", n)
				}
			})
		}
	}
}

// The same over TLS, with a server that would speak HTTP/2.
func TestSingleSendTLS(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var protocol atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		if requests.Add(1) == 1 {
			_, _ = io.WriteString(w, `{"id":"pi"}`)
			return
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	given, _ := server.Client().Transport.(*http.Transport)
	client, err := New("apk_test_x", WithBaseURL(server.URL), WithTransport(given))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.PaymentIntents.Get(t.Context(), "pi_1"); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err = client.PaymentIntents.Cancel(t.Context(), "pi_1"); !errors.As(err, &e) || e.Kind != KindConnection || e.IdempotencyKey == "" {
		t.Fatalf("got %v, want a connection error with its key", err)
	}
	// GET: it was sent, so it is not repeated either.
	if _, err = client.PaymentIntents.Get(t.Context(), "pi_1"); !errors.As(err, &e) || e.Attempts != 1 {
		t.Fatalf("got %v, want an error after one attempt", err)
	}
	if requests.Load() != 3 || protocol.Load() != "HTTP/1.1" {
		t.Fatalf("%d requests over %v, want 3 over HTTP/1.1", requests.Load(), protocol.Load())
	}
}

// A connection that died while it was idle is no loss for a GET: nothing was sent, so it is sent on a new one.
func TestDeadIdleConnection(t *testing.T) {
	t.Parallel()
	var p progress
	if p.nothingSent(io.EOF) {
		t.Fatal("an unknown failure without a connection must not count as unsent")
	}
	conn := &countedConn{}
	p.conn.Store(conn)
	p.got.Store(true)
	if !p.nothingSent(io.EOF) {
		t.Fatal("no write was begun, so nothing was sent")
	}
	conn.writes.Add(1)
	if p.nothingSent(io.EOF) {
		t.Fatal("a write was begun, so something may have been sent")
	}
}

func TestErrorsIs(t *testing.T) {
	t.Parallel()
	client, err := New("apk_test_x", WithBaseURL("http://127.0.0.1:9"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.PaymentIntents.Create(ctx, &PaymentIntentCreateParams{Amount: 1, Currency: "EUR"}, WithIdempotencyKey("k1"))
	var e *Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.IdempotencyKey != "k1" || e.Attempts != 0 {
		t.Fatalf("got %#v", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err = client.PaymentIntents.Get(ctx, "pi_1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err = client.PaymentIntents.Get(t.Context(), "../x"); !HasCode(err, CodeInvalidArgument) {
		t.Fatalf("got %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func() (*Client, error){
		"an empty key":        func() (*Client, error) { return New("") },
		"a key with a break":  func() (*Client, error) { return New("apk_test_x\r\nX: y") },
		"another scheme":      func() (*Client, error) { return New("apk_test_x", WithBaseURL("ftp://x")) },
		"a password":          func() (*Client, error) { return New("apk_test_x", WithBaseURL("https://a:SECRET@x")) },
		"negative retries":    func() (*Client, error) { return New("apk_test_x", WithMaxRetries(-1)) },
		"a timeout of 0":      func() (*Client, error) { return New("apk_test_x", WithTimeout(0)) },
		"a negative deadline": func() (*Client, error) { return New("apk_test_x", WithConnectTimeout(-1)) },
	} {
		if _, err := make(); !HasCode(err, CodeInvalidArgument) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
