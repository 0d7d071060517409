// Package post makes one HTTP attempt of a webhook: a POST whose every part happens under one time limit, to an address that
// the policy admits, read no further than its answer is kept. What a receiver sends can fail the attempt and nothing else.
package post

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/webhook"
)

const (
	// ExcerptBytes is how much of an answer is read and kept.
	ExcerptBytes = 16 << 10
	// maxHeaderBytes bounds an answer's header block.
	maxHeaderBytes = 64 << 10
	// idleTimeout lies below the 5 s after which common servers close idle connections, so that a request does not meet
	// a connection that is about to close.
	idleTimeout = 4 * time.Second
	// maxConnectionAge is how long an endpoint's connections are used before its name is looked up again.
	maxConnectionAge = 2 * time.Minute
	maxIdle          = 64
)

// Config of a [Client].
type Config struct {
	// Policy says which addresses may be dialed.
	Policy webhook.Policy
	// Timeout is the one limit over DNS, connect, TLS, headers and body.
	Timeout time.Duration
	// DNS is the resolver's host:port; empty for the system's.
	DNS string
	// Proxy, if set, is asked by CONNECT for every connection.
	Proxy *url.URL
	// Roots verify receivers (and a proxy that speaks TLS); nil for the system's.
	Roots *x509.CertPool
}

// Client posts. Its connections are kept per endpoint. It is safe for concurrent use.
type Client struct {
	config   Config
	resolver *resolver
	sessions tls.ClientSessionCache
	// proxyIsAway stands until a probe reaches the proxy.
	proxyIsAway atomic.Bool

	mu        sync.Mutex
	endpoints map[uuid.UUID]*keeper
	swept     time.Time
}

// keeper holds the connections of one endpoint.
type keeper struct {
	transport *http.Transport
	born      time.Time
	used      time.Time
}

// New makes a client; Close it.
func New(config Config) *Client {
	return &Client{
		config:    config,
		resolver:  newResolver(config.DNS),
		sessions:  tls.NewLRUClientSessionCache(1024),
		endpoints: map[uuid.UUID]*keeper{},
	}
}

// Close closes idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.endpoints {
		k.transport.CloseIdleConnections()
	}
}

// Request is what to send where.
type Request struct {
	EndpointID uuid.UUID
	URL        string
	Header     http.Header
	Body       []byte
	// Now is the database's time at the start, by which Retry-After dates are read.
	Now time.Time
}

// Result of an attempt. Class is "" for success.
type Result struct {
	Class      Class
	StatusCode int    // 0 where no status line came
	Excerpt    string // valid text of at most ExcerptBytes bytes
	RemoteIP   string
	Phases     Phases
	Reused     bool
	// RetryAfter is what a 429 or 503 asked for, unbounded above by our own cap; 0 for nothing usable.
	RetryAfter time.Duration
	// Ours says that the receiver was not at fault, nor asked: the resolver or the proxy is away, or ctx ended.
	Ours bool
}

// Succeeded says that the status line was a 2xx.
func (r Result) Succeeded() bool { return r.Class == "" && !r.Ours }

// Phases are durations; those of a connection that was reused are zero.
type Phases struct {
	DNS, Connect, TLS, FirstByte, Total time.Duration
}

// Post makes the attempt. It returns within the timeout, and when ctx ends.
func (c *Client) Post(ctx context.Context, request Request) Result {
	if err := c.config.Policy.CheckURL(request.URL); err != nil {
		return Result{Class: classOf(err, phaseStart)}
	}
	t := newTimings()
	postCtx, cancel := context.WithTimeout(t.attach(ctx), c.config.Timeout)
	defer cancel()
	result := c.exchange(postCtx, request, t)
	if result.Class != "" && ctx.Err() != nil {
		result.Ours = true
	}
	result.Phases, result.RemoteIP, result.Reused = t.finish()
	return result
}

func (c *Client) exchange(ctx context.Context, request Request, t *timings) Result {
	// From a bytes.Reader net/http makes GetBody itself, so that HTTP/2 can send the body again.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, request.URL, bytes.NewReader(request.Body))
	if err != nil {
		return Result{Class: ClassBlocked}
	}
	r.Header = request.Header
	response, err := c.transport(request.EndpointID).RoundTrip(r)
	if err != nil {
		if status := t.sniffed(); status >= 200 {
			// The status line came; what broke after it does not change what the receiver said.
			return Result{StatusCode: status, Class: classOfStatus(status, "")}
		}
		return Result{Class: classOf(err, t.phase()), Ours: errors.As(err, new(*oursError))}
	}
	defer response.Body.Close()
	// A body that breaks or never ends is cut: the status line has decided.
	body, _ := io.ReadAll(io.LimitReader(response.Body, ExcerptBytes))
	return Result{
		StatusCode: response.StatusCode,
		Class:      classOfStatus(response.StatusCode, response.Header.Get("Location")),
		Excerpt:    excerpt(body),
		RetryAfter: retryAfter(response, request.Now.Add(t.elapsed())),
	}
}

// transport is the endpoint's, renewed at the maximum age: a receiver that moved is found again, and the addresses are
// judged again. What is in flight on the old one ends there.
func (c *Client) transport(endpointID uuid.UUID) *http.Transport {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.swept) > time.Minute {
		c.swept = now
		for id, k := range c.endpoints {
			if now.Sub(k.used) > 2*time.Minute {
				k.transport.CloseIdleConnections()
				delete(c.endpoints, id)
			}
		}
	}
	k := c.endpoints[endpointID]
	if k == nil || now.Sub(k.born) > maxConnectionAge {
		if k != nil {
			k.transport.CloseIdleConnections()
		}
		k = &keeper{transport: c.newTransport(), born: now}
		c.endpoints[endpointID] = k
	}
	k.used = now
	return k.transport
}

func (c *Client) newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment's proxies are not for webhooks
		DialContext:            c.dialPlain,
		DialTLSContext:         c.dialTLS,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        4 << 10,
	}
}

// excerpt makes text of whatever came that any text column takes.
func excerpt(body []byte) string {
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > ExcerptBytes {
		text = strings.ToValidUTF8(text[:ExcerptBytes], "")
	}
	return text
}

// timings are written by the hooks of a connection attempt, which may outlive the request that began it.
type timings struct {
	mu       sync.Mutex
	start    time.Time
	at       phase
	phases   Phases
	remoteIP string
	reused   bool
	conn     *sniffedConn
}

type phase int

const (
	phaseStart phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
	phaseExchange
)

type timingsKey struct{}

func newTimings() *timings { return &timings{start: time.Now()} }

func (t *timings) attach(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, timingsKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.at, t.reused = phaseExchange, info.Reused
			if info.Reused {
				t.phases = Phases{}
			}
			if sniffed, ok := info.Conn.(*sniffedConn); ok {
				sniffed.reset()
				t.conn = sniffed
			}
			if addr, ok := info.Conn.RemoteAddr().(*net.TCPAddr); ok && t.remoteIP == "" {
				t.remoteIP = addr.AddrPort().Addr().Unmap().String()
			}
		},
		GotFirstResponseByte: func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.phases.FirstByte = time.Since(t.start)
		},
	})
}

// timingsOf is never nil.
func timingsOf(ctx context.Context) *timings {
	if t, ok := ctx.Value(timingsKey{}).(*timings); ok {
		return t
	}
	return newTimings()
}

// enter begins a phase and returns what ends it.
func (t *timings) enter(p phase, d func(*Phases) *time.Duration) func() {
	t.mu.Lock()
	t.at = p
	t.mu.Unlock()
	start := time.Now()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		*d(&t.phases) += time.Since(start)
	}
}

func (t *timings) remote(ip string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remoteIP = ip
}

func (t *timings) phase() phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

func (t *timings) sniffed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return 0
	}
	return t.conn.status()
}

func (t *timings) elapsed() time.Duration { return time.Since(t.start) }

func (t *timings) finish() (Phases, string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phases.Total = time.Since(t.start)
	return t.phases, t.remoteIP, t.reused
}
