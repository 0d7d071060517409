package post

import (
	"net"
	"strconv"
	"sync"
)

// sniffedConn remembers the beginning of the answer on an HTTP/1 connection. net/http gives no status when the header block
// is too large, malformed or unfinished; but it is the status line alone that says whether the receiver took the event.
type sniffedConn struct {
	net.Conn
	mu   sync.Mutex
	head [16]byte
	n    int
}

func (c *sniffedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.n += copy(c.head[c.n:], b[:n])
		c.mu.Unlock()
	}
	return n, err
}

// reset forgets the last exchange's answer; called when a request gets the connection, before anything of it is written.
func (c *sniffedConn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
}

// status is the code of the status line, 0 if it has not come in full. An interim 1xx answer counts as none.
func (c *sniffedConn) status() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := string(c.head[:c.n])
	if len(head) < len("HTTP/1.1 200 ") || head[:7] != "HTTP/1." || head[8] != ' ' {
		return 0
	}
	if end := head[12]; end != ' ' && end != '\r' && end != '\n' {
		return 0
	}
	code, err := strconv.Atoi(head[9:12])
	if err != nil || code < 200 {
		return 0
	}
	return code
}
