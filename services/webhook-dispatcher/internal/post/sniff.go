package post

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// closeTimeout is what a receiver has to take the end of its TLS connection. crypto/tls gives it five seconds, and net/http
// closes connections under locks that other attempts wait for.
const closeTimeout = 100 * time.Millisecond

// sniffedConn remembers the status line of the answer on an HTTP/1 connection. net/http gives no status when the header block
// is too large, malformed or unfinished; but it is the status line alone that says whether the receiver took the event.
type sniffedConn struct {
	net.Conn
	// raw is the connection under TLS, or Conn itself.
	raw net.Conn

	mu sync.Mutex
	// owner is the attempt that got the connection last.
	owner *timings
	head  [16]byte
	n     int
	// decided: the status line is a final one. interim is the last 1xx code before it; emptyLine, that its block may end.
	decided   bool
	interim   int
	emptyLine bool
}

func (c *sniffedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.sniff(b[:n])
	}
	return n, err
}

// sniff goes on past interim answers: their blocks end with an empty line, and the next status line follows.
func (c *sniffedConn) sniff(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range b {
		if c.decided {
			return
		}
		if c.n < len(c.head) {
			c.head[c.n] = x
			c.n++
		}
		switch x {
		case '\r':
			continue
		case '\n':
		default:
			c.emptyLine = false
			continue
		}
		code := c.code()
		switch {
		case code == 0 || isFinal(code):
			c.decided = true
		case c.emptyLine:
			c.interim, c.n, c.emptyLine = code, 0, false
		default:
			c.interim, c.emptyLine = code, true
		}
	}
}

// reset forgets the last exchange's answer; called when a request gets the connection, before anything of it is written.
func (c *sniffedConn) reset(owner *timings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner, c.n, c.decided, c.interim, c.emptyLine = owner, 0, false, 0, false
}

// status is the code of the final status line, 0 if it has not come in full, and that of the last interim one before it.
func (c *sniffedConn) status() (final, interim int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if code := c.code(); isFinal(code) {
		return code, c.interim
	}
	return 0, c.interim
}

func (c *sniffedConn) code() int {
	head := string(c.head[:c.n])
	if len(head) < len("HTTP/1.1 200 ") || head[:7] != "HTTP/1." || head[8] != ' ' {
		return 0
	}
	if end := head[12]; end != ' ' && end != '\r' && end != '\n' {
		return 0
	}
	code, err := strconv.Atoi(head[9:12])
	if err != nil || code < 100 {
		return 0
	}
	return code
}

func isFinal(code int) bool { return code == http.StatusSwitchingProtocols || code >= 200 }

// sever closes the connection at once, unless another attempt has it by now.
func (c *sniffedConn) sever(owner *timings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner == owner {
		_ = c.raw.Close() // nobody reads its errors anymore
	}
}

func (c *sniffedConn) Close() error {
	timer := time.AfterFunc(closeTimeout, func() { _ = c.raw.Close() }) // the other Close tells
	defer timer.Stop()
	return c.Conn.Close()
}
