package post

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"time"
)

// timings are written by the hooks of a connection attempt, which may outlive the request that began it.
type timings struct {
	mu       sync.Mutex
	start    time.Time
	at       phase
	phases   Phases
	remoteIP string
	reused   bool
	// conn is the exchange's own connection, shared one of HTTP/2 that carries others too.
	conn   *sniffedConn
	shared *tls.Conn
	// answer is what the receiver said so far.
	answer *Result
	// left is told when the receiver ends the connection that this exchange makes.
	left func(after time.Duration)
	// isOver: the connection's end is the attempt's limit, not the receiver's doing.
	isOver bool
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
			t.conn, t.shared = nil, nil
			switch conn := info.Conn.(type) {
			case *sniffedConn:
				conn.reset(t)
				t.conn = conn
			case *tls.Conn:
				t.shared = conn
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

// failed is the result of an exchange that ended without an answer of net/http's.
func (t *timings) failed(err error) Result {
	final, interim := t.sniffed()
	if final != 0 {
		// The status line came; what broke after it does not change what the receiver said.
		return Result{StatusCode: final, Class: classOfStatus(final, "")}
	}
	if t.over() {
		err = context.DeadlineExceeded
	}
	class := classOf(err, t.phase())
	if interim != 0 && (class == ClassReset || class == ClassProtocol) {
		// It had no more to say than that.
		return Result{StatusCode: interim, Class: ClassStatus}
	}
	return Result{Class: class, Ours: errors.As(err, new(*oursError))}
}

func (t *timings) sniffed() (final, interim int) {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn == nil {
		return 0, 0
	}
	return conn.status()
}

// wasUnread says that the request went into a kept connection that the receiver had left before.
func (t *timings) wasUnread() bool {
	t.mu.Lock()
	conn, reused := t.conn, t.reused
	t.mu.Unlock()
	return reused && conn != nil && conn.wasUnread(t)
}

func (t *timings) tell(r Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer = &r
}

func (t *timings) told() (Result, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.answer == nil {
		return Result{}, false
	}
	return *t.answer, true
}

func (t *timings) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver
}

func (t *timings) cutOff() {
	t.mu.Lock()
	t.isOver = true
	t.mu.Unlock()
	t.sever()
}

// sever closes the exchange's own connection under it.
func (t *timings) sever() {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn != nil {
		conn.sever(t)
	}
}

// severShared closes a connection that other exchanges use too.
func (t *timings) severShared() {
	t.mu.Lock()
	conn := t.shared
	t.mu.Unlock()
	if conn != nil {
		_ = conn.NetConn().Close() // nobody reads its errors anymore
	}
}

func (t *timings) elapsed() time.Duration { return time.Since(t.start) }

func (t *timings) finish() (Phases, string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phases.Total = time.Since(t.start)
	return t.phases, t.remoteIP, t.reused
}
