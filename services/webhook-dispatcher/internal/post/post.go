// Package post makes one HTTP attempt of a webhook: a POST whose every part happens under one time limit, to an address that
// the policy admits, read no further than its answer is kept. What a receiver sends can fail the attempt and nothing else.
package post

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
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
	// shortestIdle is what a receiver must have kept a connection for, for that to be a rule of its own.
	shortestIdle = 20 * time.Millisecond
	maxIdle      = 64
	// grace is what an exchange has to end in after its connection was closed, before it is left to itself.
	grace = 300 * time.Millisecond
	// stallTimeout is how long an HTTP/2 connection may take no byte, or leave a ping without an answer.
	stallTimeout = 5 * time.Second
	// streamBuffer bounds what a receiver can make us hold per HTTP/2 answer, whatever is read of it.
	streamBuffer = 64 << 10
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
	// proxyLeft is since when, in Unix nanoseconds. proxyAnswers: it answers probes.
	proxyLeft    atomic.Int64
	proxyAnswers atomic.Bool
	// tunneled is when the proxy last opened a tunnel, in Unix nanoseconds.
	tunneled atomic.Int64

	mu        sync.Mutex
	endpoints map[uuid.UUID]*keeper
	swept     time.Time
}

// keeper holds the connections of one endpoint.
type keeper struct {
	transport *http.Transport
	born      time.Time
	used      time.Time
	// idle is how long its connections are kept unused.
	idle time.Duration
}

// New makes a client; Close it.
func New(config Config) *Client {
	return &Client{
		config:    config,
		resolver:  newResolver(config.DNS, config.Timeout),
		sessions:  tls.NewLRUClientSessionCache(1024),
		endpoints: map[uuid.UUID]*keeper{},
	}
}

// Close closes idle connections, and does not wait long for those that will not be closed.
func (c *Client) Close() {
	c.mu.Lock()
	var transports []*http.Transport
	for _, k := range c.endpoints {
		if k.transport != nil {
			transports = append(transports, k.transport)
		}
	}
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, transport := range transports {
			transport.CloseIdleConnections()
		}
	}()
	select {
	case <-closed:
	case <-time.After(grace):
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

// Post makes the attempt. It returns within the timeout, and when ctx ends, give or take a moment of grace.
func (c *Client) Post(ctx context.Context, request Request) Result {
	if err := c.config.Policy.CheckURL(request.URL); err != nil {
		return Result{Class: classOf(err, phaseStart)}
	}
	limit, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	t := newTimings()
	t.left = func(after time.Duration) { c.learnIdle(request.EndpointID, after) }
	result := c.once(limit, request, t)
	if result.Class == ClassReset && t.wasUnread() && limit.Err() == nil {
		// Of the same attempt, and not on another connection that was kept as long.
		c.renew(request.EndpointID)
		again := newTimings()
		again.start, again.left = t.start, t.left
		t = again
		result = c.once(limit, request, t)
	}
	if result.Class != "" && (ctx.Err() != nil || c.isProxys(limit, result.Class)) {
		result.Ours = true
	}
	result.Phases, result.RemoteIP, result.Reused = t.finish()
	return result
}

// once is one exchange within the limit, whatever net/http does there and whatever it waits for.
func (c *Client) once(limit context.Context, request Request, t *timings) Result {
	ended := make(chan Result, 1)
	go c.exchange(t.attach(limit), request, t, ended)
	select {
	case result := <-ended:
		return result
	case <-limit.Done():
		return c.cutOff(request.EndpointID, t, ended)
	}
}

// cutOff ends an exchange that is over its limit: its connection is closed under it, and if even that does not end it, it
// is left to itself. What the receiver has said by then counts.
func (c *Client) cutOff(endpointID uuid.UUID, t *timings, ended <-chan Result) Result {
	t.cutOff()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case result := <-ended:
		return result
	case <-timer.C:
	}
	c.abandon(endpointID, t)
	if told, ok := t.told(); ok {
		return told
	}
	return t.failed(context.DeadlineExceeded)
}

// exchange passes its result on as soon as it is known: closing a body can wait for the receiver again.
func (c *Client) exchange(ctx context.Context, request Request, t *timings, ended chan<- Result) {
	// From a bytes.Reader net/http makes GetBody itself, so that HTTP/2 can send the body again.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, request.URL, bytes.NewReader(request.Body))
	if err != nil {
		ended <- Result{Class: ClassBlocked}
		return
	}
	r.Header = request.Header
	response, err := c.transport(request.EndpointID).RoundTrip(r)
	if err != nil {
		ended <- t.failed(err)
		return
	}
	result := Result{
		StatusCode: response.StatusCode,
		Class:      classOfStatus(response.StatusCode, response.Header.Get("Location")),
		RetryAfter: retryAfter(response, request.Now.Add(t.elapsed())),
	}
	t.tell(result)
	if response.StatusCode >= 200 {
		// A body that breaks or never ends is cut: the status line has decided.
		body, _ := io.ReadAll(io.LimitReader(response.Body, ExcerptBytes))
		result.Excerpt = excerpt(body)
		ended <- result
	} else {
		// 101: what follows is not HTTP, has no end, and net/http does not bind it to the request.
		ended <- result
		t.sever()
	}
	_ = response.Body.Close() // nothing of it is wanted anymore
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
				k.drop()
				delete(c.endpoints, id)
			}
		}
	}
	k := c.endpoints[endpointID]
	if k == nil {
		k = &keeper{idle: idleTimeout}
		c.endpoints[endpointID] = k
	}
	if k.transport == nil || now.Sub(k.born) > maxConnectionAge {
		k.drop()
		k.transport, k.born = c.newTransport(k.idle), now
	}
	k.used = now
	return k.transport
}

// learnIdle keeps the connections of an endpoint for half as long, from now on, as its receiver was seen to keep one. What ends
// at once says nothing of that.
func (c *Client) learnIdle(endpointID uuid.UUID, after time.Duration) {
	if after < shortestIdle {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.endpoints[endpointID]; k != nil && after/2 < k.idle {
		k.idle = after / 2
		k.drop()
	}
}

// drop leaves the connections that are kept now; what is in flight on them ends there.
func (k *keeper) drop() {
	if k.transport != nil {
		go k.transport.CloseIdleConnections() // it may wait for a receiver, and nobody for it
		k.transport = nil
	}
}

// renew keeps later attempts off the connections that are kept now.
func (c *Client) renew(endpointID uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.endpoints[endpointID]; k != nil {
		k.drop()
	}
}

// abandon keeps later attempts off the connections of one that does not end.
func (c *Client) abandon(endpointID uuid.UUID, t *timings) {
	t.severShared()
	c.renew(endpointID)
}

func (c *Client) newTransport(idle time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment's proxies are not for webhooks
		DialContext:            c.dialPlain,
		DialTLSContext:         c.dialTLS,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idle,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        4 << 10,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamBuffer,
			SendPingTimeout:           stallTimeout,
			PingTimeout:               stallTimeout,
			WriteByteTimeout:          stallTimeout,
		},
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
