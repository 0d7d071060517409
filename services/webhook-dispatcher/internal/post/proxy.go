package post

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// tunnelProof is how long a tunnel shows that the proxy serves us.
const tunnelProof = time.Minute

// silentProxy is how long a proxy that answered probes once, and does not anymore, keeps sending paused. What is sent then is
// given back uncounted if it does not get through.
const silentProxy = 30 * time.Second

// connectByProxy asks the proxy for a tunnel to an address that was resolved and judged here. The proxy's own address is
// the operator's and not judged. A proxy that is away or refuses us is our fault, not the receiver's.
func (c *Client) connectByProxy(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	proxy := c.config.Proxy
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", proxyAddress(proxy))
	if err != nil {
		return nil, c.proxyAway(err)
	}
	if proxy.Scheme == "https" {
		secure := tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), RootCAs: c.config.Roots, MinVersion: tls.VersionTLS12})
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake's error is the one to tell
			return nil, c.proxyAway(err)
		}
		conn = secure
	}
	tunnel, err := c.askTunnel(ctx, conn, to)
	if err != nil {
		_ = conn.Close() // as above
		return nil, err
	}
	return tunnel, nil
}

func (c *Client) askTunnel(ctx context.Context, conn net.Conn, to netip.AddrPort) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, c.proxyAway(err)
		}
	}
	request := "CONNECT " + to.String() + " HTTP/1.1\r\nHost: " + to.String() + "\r\n"
	if user := c.config.Proxy.User; user != nil {
		password, _ := user.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := conn.Write([]byte(request + "\r\n")); err != nil {
		return nil, c.proxyAway(err)
	}
	reader := bufio.NewReaderSize(conn, 4096)
	// Its body is left alone: an answer to CONNECT has none, and closing what a length announces would wait for it.
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // see above
	if err != nil {
		if ctx.Err() != nil || isTimeout(err) {
			// A proxy that waits for a receiver that does not answer looks like this, and so does one that stands still.
			return nil, fmt.Errorf("waiting for the tunnel: %w", err)
		}
		return nil, c.proxyAway(err)
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, fmt.Errorf("the proxy cannot reach the receiver: %d", response.StatusCode)
	default:
		if at := c.tunneled.Load(); at != 0 && time.Since(time.Unix(0, at)) < tunnelProof {
			// It opens tunnels for others: this receiver, or its port, is what it refuses.
			return nil, fmt.Errorf("the proxy refuses the receiver: %d", response.StatusCode)
		}
		return nil, c.proxyAway(fmt.Errorf("the proxy answers %d", response.StatusCode))
	}
	if reader.Buffered() > 0 {
		return nil, c.proxyAway(fmt.Errorf("the proxy sent data before the tunnel"))
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, c.proxyAway(err)
	}
	c.tunneled.Store(time.Now().UnixNano())
	return conn, nil
}

func (c *Client) leaveProxy() {
	if c.proxyIsAway.CompareAndSwap(false, true) {
		c.proxyLeft.Store(time.Now().UnixNano())
	}
}

func (c *Client) proxyAway(err error) error {
	c.leaveProxy()
	return &oursError{fmt.Errorf("asking the proxy: %w", err)}
}

func proxyAddress(proxy *url.URL) string {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	return net.JoinHostPort(proxy.Hostname(), port)
}

// isProxys judges a failure without an answer, which may be the receiver's or that of a proxy that died or stands still.
func (c *Client) isProxys(limit context.Context, class Class) bool {
	if c.config.Proxy == nil || class != ClassTimeout && class != ClassConnectTimeout && class != ClassReset {
		return false
	}
	// A probe that had no time would find everything silent.
	if deadline, ok := limit.Deadline(); ok && !c.proxyIsAway.Load() && limit.Err() == nil && time.Until(deadline) > 2*c.probeTimeout() {
		c.probeProxy(limit)
	}
	return c.proxyIsAway.Load()
}

// probeProxy looks whether the proxy lives. One that never answered a probe may be one that answers to CONNECT only, and is
// judged by its tunnels alone; so is one that stopped answering, after a while, lest sending is paused for ever.
func (c *Client) probeProxy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.probeTimeout())
	defer cancel()
	err := c.askProxy(ctx)
	switch {
	case err == nil:
		c.proxyAnswers.Store(true)
		c.proxyIsAway.Store(false)
	case !isTimeout(err):
		c.leaveProxy()
	case c.proxyAnswers.Load():
		c.leaveProxy()
		if time.Since(time.Unix(0, c.proxyLeft.Load())) > silentProxy {
			c.proxyAnswers.Store(false)
			c.proxyIsAway.Store(false)
		}
	default:
		// It takes connections.
		c.proxyIsAway.Store(false)
	}
}

func (c *Client) probeTimeout() time.Duration { return min(maxProbeTimeout, c.config.Timeout/8) }

// askProxy asks the proxy for anything at all. A port that accepts connections is no proof: the system does that for a
// process that stands still. Any answer is, a refusal too, and so is the end of the connection.
func (c *Client) askProxy(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", proxyAddress(c.config.Proxy))
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	// To a proxy that speaks TLS this is no handshake, which it says or ends the connection for.
	if _, err := conn.Write([]byte("OPTIONS * HTTP/1.1\r\nHost: " + c.config.Proxy.Host + "\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); isTimeout(err) {
		return err
	}
	return nil
}
