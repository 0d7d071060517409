package apipay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// net/http sends a request again by itself when a reused connection breaks before the first byte of an answer, if it holds
// the request for replayable (isReplayable in request.go): GET, or any method with an Idempotency-Key, without a body or
// with GetBody. It has no switch for that, so requests are built such that it never holds:
//
//   - No request has GetBody: http.NewRequest would set it, so the body is put in by hand.
//   - A GET has a body that turns out to be empty. A body that cannot be rewound makes it unreplayable; on the wire there
//     is none, because net/http probes the body of a GET and drops it.
//   - A POST with an empty body must say Content-Length: 0, which only no body does. Its Idempotency-Key is put into the
//     header map under its lower-case name, which is the same header on the wire and not the one net/http looks for.
//
// HTTP/2 has replay rules of its own (after GOAWAY and REFUSED_STREAM), and is off. Redirects are followed by http.Client,
// which is not used. TestSingleSend and the conformance vectors hold all this against sockets.
func newRequest(ctx context.Context, method, address string, body []byte, header http.Header) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := request.Header[name]; ok {
			delete(request.Header, name)
			request.Header[map[string]string{"Idempotency-Key": "idempotency-key", "X-Idempotency-Key": "x-idempotency-key"}[name]] = values
		}
	}
	switch {
	case len(body) > 0:
		request.Body = io.NopCloser(bytes.NewReader(body))
		request.ContentLength = int64(len(body))
	case method == http.MethodGet:
		request.Body = emptyBody{}
	}
	return request, nil
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

func newTransport(given *http.Transport, connectTimeout time.Duration) *http.Transport {
	if given == nil {
		given, _ = http.DefaultTransport.(*http.Transport)
		if given == nil { // the program replaced it
			given = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second}
		}
		given = given.Clone()
		given.DialContext = nil
		given.MaxIdleConnsPerHost = 32
	}
	t := given.Clone()
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if t.TLSClientConfig != nil {
		// A transport that was used before offers h2 here, and a server that takes the offer is then spoken to in HTTP/1.1.
		t.TLSClientConfig.NextProtos = []string{"http/1.1"} // Clone has copied the configuration
	}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &connectError{err}
		}
		return &countedConn{Conn: conn}, nil
	}
	return t
}

// connectError marks an error of connecting: nothing was sent.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

// countedConn counts writes that were begun.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// progress follows one attempt, to tell whether anything can have been sent.
type progress struct {
	tls    atomic.Bool
	conn   atomic.Pointer[countedConn]
	got    atomic.Bool
	before atomic.Int64
}

func (p *progress) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.tls.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			conn := info.Conn
			if t, ok := conn.(*tls.Conn); ok {
				conn = t.NetConn()
			}
			if counted, ok := conn.(*countedConn); ok {
				p.before.Store(counted.writes.Load())
				p.conn.Store(counted)
			}
			p.got.Store(true)
		},
	})
}

// nothingSent says that the attempt failed before a byte of the request was written: it could not connect, or was given
// a connection that was already dead. A failed TLS handshake is not counted as such: it will not get better.
func (p *progress) nothingSent(err error) bool {
	if p.got.Load() {
		conn := p.conn.Load()
		return conn != nil && conn.writes.Load() == p.before.Load()
	}
	var connect *connectError
	return errors.As(err, &connect) || (!p.tls.Load() && errors.Is(err, context.DeadlineExceeded))
}
