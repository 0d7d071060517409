package post

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// connectTimeout bounds one address, so that a second one gets its turn within the attempt's limit.
const connectTimeout = 5 * time.Second

// dialPlain is for http:// URLs.
func (c *Client) dialPlain(ctx context.Context, _, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &sniffedConn{Conn: conn, raw: conn, left: timingsOf(ctx).left}, nil
}

// dialTLS is for https:// URLs. An HTTP/2 connection is returned bare, since net/http recognizes it by its type.
func (c *Client) dialTLS(ctx context.Context, _, addr string) (net.Conn, error) {
	// net/http goes on with a connection attempt after the request that began it has ended, hence an own limit.
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("splitting the address: %w", err)
	}
	raw, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	done := timingsOf(ctx).enter(phaseTLS, func(p *Phases) *time.Duration { return &p.TLS })
	defer done()
	conn := tls.Client(raw, &tls.Config{
		ServerName:         serverName(host),
		RootCAs:            c.config.Roots,
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: c.sessions,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is the one to tell
		return nil, fmt.Errorf("shaking hands: %w", err)
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		return conn, nil
	}
	return &sniffedConn{Conn: conn, raw: raw, left: timingsOf(ctx).left}, nil
}

// serverName drops the root's dot, which certificates do not have.
func serverName(host string) string {
	if n := len(host); n > 1 && host[n-1] == '.' {
		return host[:n-1]
	}
	return host
}

// dial resolves, judges and connects. Every address of the answer must be admitted: one that is not is how a name that
// leads inside looks, and the ones beside it are no reason to trust it.
func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("splitting the address: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the port: %w", err)
	}
	t := timingsOf(ctx)
	resolved := t.enter(phaseDNS, func(p *Phases) *time.Duration { return &p.DNS })
	addrs, err := c.resolver.lookup(ctx, host)
	resolved()
	if err != nil {
		return nil, err
	}
	for _, ip := range addrs {
		if err := c.config.Policy.CheckIP(ip); err != nil {
			return nil, fmt.Errorf("checking the address: %w", err)
		}
	}
	connected := t.enter(phaseConnect, func(p *Phases) *time.Duration { return &p.Connect })
	defer connected()
	// IPv4 first: of the two it is the one that is wrongly configured less often.
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	var firstErr error
	for i, ip := range addrs {
		conn, err := c.connect(ctx, netip.AddrPortFrom(ip, uint16(port)), len(addrs)-i)
		if err == nil {
			t.remote(ip.String())
			return conn, nil
		}
		if firstErr == nil {
			firstErr = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, firstErr
}

// connect reaches one address, directly or through the proxy, in its share of the time that is left.
func (c *Client) connect(ctx context.Context, to netip.AddrPort, left int) (net.Conn, error) {
	timeout := connectTimeout
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		timeout = min(timeout, time.Until(deadline)/time.Duration(left))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.config.Proxy != nil {
		return c.connectByProxy(ctx, to)
	}
	// The policy again, at the last moment and on what is dialed.
	dialer := net.Dialer{ControlContext: c.config.Policy.ControlContext, KeepAlive: 15 * time.Second}
	return dialer.DialContext(ctx, "tcp", to.String())
}
