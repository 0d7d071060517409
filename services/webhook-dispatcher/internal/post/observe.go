package post

import (
	"context"
	"net"
	"time"
)

// A DNS message's flags follow its id; over TCP a length comes first.
const (
	dnsFlags      = 2
	dnsFlagsOnTCP = dnsFlags + 2
	dnsIsAnswer   = 0x80
	dnsCode       = 0x0f
	dnsNoError    = 0
	dnsNoSuchName = 3
)

// observe counts what the resolver answers on a connection. The library's errors do not say it: they mix an answer that
// there is nothing with one that tells of trouble.
func (r *resolver) observe(ctx context.Context, conn net.Conn) net.Conn {
	// Ends the wait for an answer that nobody needs anymore.
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if packet, ok := conn.(*net.UDPConn); ok {
		// Kept a packet connection: the library frames messages by this.
		return &observedPackets{UDPConn: packet, r: r}
	}
	return &observedStream{Conn: conn, r: r}
}

func (r *resolver) sawFlags(flags []byte) {
	if flags[0]&dnsIsAnswer == 0 {
		return
	}
	r.answered.Add(1)
	if code := flags[1] & dnsCode; code == dnsNoError || code == dnsNoSuchName {
		r.proper.Add(1)
	}
}

type observedPackets struct {
	*net.UDPConn
	r *resolver
}

func (c *observedPackets) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if n >= dnsFlags+2 {
		c.r.sawFlags(b[dnsFlags:n])
	}
	return n, err
}

// observedStream carries one answer.
type observedStream struct {
	net.Conn
	r    *resolver
	head [dnsFlagsOnTCP + 2]byte
	n    int
}

func (c *observedStream) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.n < len(c.head) {
		c.n += copy(c.head[c.n:], b[:n])
		if c.n == len(c.head) {
			c.r.sawFlags(c.head[dnsFlagsOnTCP:])
		}
	}
	return n, err
}
