package post

import (
	"errors"
	"io"
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

	// ended: the receiver's end of the connection has come. wrote: something of the owner's request was written before. unread:
	// the receiver's end came, and it had not taken a byte of the request.
	ended, wrote, unread bool
	// taken is what the receiver had acknowledged before the owner's request, if that is known.
	taken   uint64
	isKnown bool
	// heard is when the receiver last said something; left is told how long after that it ended the connection.
	heard time.Time
	left  func(after time.Duration)
}

func (c *sniffedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.sniff(b[:n])
	}
	if err != nil && !errors.Is(err, net.ErrClosed) && !isTimeout(err) {
		c.end(errors.Is(err, io.EOF))
	}
	return n, err
}

func (c *sniffedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.wrote = true
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	if err != nil && !errors.Is(err, net.ErrClosed) && !isTimeout(err) {
		c.end(hasEnded(c.raw))
	}
	return n, err
}

// end notes whether the receiver left before it took the request, as those do that close idle connections: it has happened
// if nothing was written by then, and it is proved if its FIN came without having acknowledged a byte, since a FIN acknowledges
// all that has come by then. A reset proves nothing: it may answer what was read.
func (c *sniffedConn) end(byFIN bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.left != nil && !c.heard.IsZero() {
		c.left(time.Since(c.heard))
	}
	c.ended = true
	if c.n == 0 && c.interim == 0 && c.wrote && byFIN && c.isKnown && acknowledgedNothingSince(c.raw, c.taken) {
		c.unread = true
	}
}

// wasUnread says that the owner's request went into a connection that the receiver had left.
func (c *sniffedConn) wasUnread(owner *timings) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner == owner && (c.unread || c.ended && !c.wrote)
}

// sniff goes on past interim answers: their blocks end with an empty line, and the next status line follows.
func (c *sniffedConn) sniff(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
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
	c.wrote, c.unread = false, c.ended
	c.taken, c.isKnown = acknowledged(c.raw)
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
