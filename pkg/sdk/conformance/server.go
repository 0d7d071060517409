package conformance

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server plays the API for one vector. It speaks HTTP/1.1 on raw sockets, because an HTTP library would hide the very
// things that are judged: how often a request arrived, on which connection, with which bytes.
type Server struct {
	answers  []Answer
	listener net.Listener
	tls      *tls.Config
	fillers  []net.Conn

	mu    sync.Mutex
	wire  Wire
	open  map[net.Conn]struct{}
	done  chan struct{}
	group sync.WaitGroup
}

// Wire is what a Server saw.
type Wire struct {
	// Connections counts those that were accepted, OpenMax the most that were open at once.
	Connections int `json:"connections"`
	OpenMax     int `json:"open_max"`
	// BytesReceived and BytesSent are counted on the socket, TLS records not included.
	BytesReceived int64 `json:"bytes_received"`
	BytesSent     int64 `json:"bytes_sent"`
	// Requests are in the order in which their header sections were complete.
	Requests []Request `json:"requests"`

	open int
}

// Request is one request as it was on the wire.
type Request struct {
	// Connection numbers the connections from 0; Reused says that it carried an earlier request.
	Connection int    `json:"connection"`
	Reused     bool   `json:"reused"`
	Method     string `json:"method"`
	Target     string `json:"target"`
	// Headers keeps the order, spelling and repetition of the wire.
	Headers [][2]string `json:"headers"`
	Body    []byte      `json:"body"`
	// Raw is the request's header section, byte for byte.
	Raw string `json:"raw"`
}

// Header gives the values of a header field, in order; names match in any case.
func (r Request) Header(name string) []string {
	var values []string
	for _, h := range r.Headers {
		if strings.EqualFold(h[0], name) {
			values = append(values, h[1])
		}
	}
	return values
}

// StartServer listens on a free port of 127.0.0.1 in the given mode (see Script.Mode) and plays the answers in order.
func StartServer(ctx context.Context, mode string, answers []Answer) (*Server, error) {
	s := &Server{answers: answers, open: map[net.Conn]struct{}{}, done: make(chan struct{})}
	var err error
	switch mode {
	case "", ModePlain:
		s.listener, err = listen(ctx)
	case ModeRefuse:
		// A port that was just free: nobody listens on it while the vector runs.
		if s.listener, err = listen(ctx); err == nil {
			s.listener.Close()
		}
		return s, err
	case ModeConnectTimeout:
		return s, s.listenFull(ctx)
	case ModeTLSSelfSigned, ModeTLSWrongName, ModeTLSExpired:
		if s.tls, err = badCertificate(mode); err == nil {
			s.listener, err = listen(ctx)
		}
	default:
		err = fmt.Errorf("unknown server mode %q", mode)
	}
	if err != nil {
		return nil, err
	}
	s.group.Go(s.accept)
	return s, nil
}

func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

// BaseURL is where a client reaches the server.
func (s *Server) BaseURL() string {
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// Snapshot copies what was seen so far.
func (s *Server) Snapshot() Wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	wire := s.wire
	wire.Requests = append([]Request(nil), s.wire.Requests...)
	return wire
}

// Close ends every connection and waits for their handlers.
func (s *Server) Close() {
	close(s.done)
	s.listener.Close()
	for _, c := range s.fillers {
		c.Close()
	}
	s.mu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

// listenFull makes a port that never completes a connect: the queue of established connections has room for one, the
// fillers take it, and Linux then drops every SYN.
func (s *Server) listenFull(ctx context.Context) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close() // the listener below has its own copy
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return err
	}
	if s.listener, err = net.FileListener(file); err != nil {
		return err
	}
	for range 4 {
		c, err := (&net.Dialer{Timeout: 200 * time.Millisecond}).DialContext(ctx, "tcp", s.listener.Addr().String())
		if err != nil {
			return nil // full
		}
		s.fillers = append(s.fillers, c)
	}
	return errors.New("the listen queue does not fill up")
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		number := s.wire.Connections
		s.wire.Connections++
		s.wire.open++
		s.wire.OpenMax = max(s.wire.OpenMax, s.wire.open)
		s.open[c] = struct{}{}
		s.mu.Unlock()
		s.group.Go(func() {
			s.serve(c, number)
			c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.wire.open--
			s.mu.Unlock()
		})
	}
}

// counted counts the bytes of a connection.
type counted struct {
	net.Conn
	s *Server
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.s.mu.Lock()
	c.s.wire.BytesReceived += int64(n)
	c.s.mu.Unlock()
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.s.mu.Lock()
	c.s.wire.BytesSent += int64(n)
	c.s.mu.Unlock()
	return n, err
}

func (s *Server) serve(socket net.Conn, number int) {
	conn := socket
	if s.tls != nil {
		t := tls.Server(socket, s.tls)
		if t.Handshake() != nil { //nolint:noctx // ended by closing the socket
			return
		}
		conn = t
	}
	conn = counted{Conn: conn, s: s}
	in := bufio.NewReader(conn)
	for nth := 0; ; nth++ {
		request, err := readRequest(in, func(r Request) int {
			r.Connection, r.Reused = number, nth > 0
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wire.Requests = append(s.wire.Requests, r)
			return len(s.wire.Requests) - 1
		})
		if err != nil {
			return
		}
		s.mu.Lock()
		s.wire.Requests[request.index].Body = request.body
		s.mu.Unlock()
		switch end := s.answer(conn, request.index); end {
		case EndKeep:
		case EndReset:
			if t, ok := socket.(*net.TCPConn); ok {
				_ = t.SetLinger(0) // the close below then sends RST
			}
			return
		case EndStall:
			// Until the client gives up or the vector is over. What a client still sends is counted.
			_, _ = io.Copy(io.Discard, in)
			return
		default:
			return
		}
	}
}

// answer plays the nth answer and says what becomes of the connection.
func (s *Server) answer(conn io.Writer, nth int) string {
	if nth >= len(s.answers) {
		// Nobody scripted this request, so the vector fails by its count; the client should not hang meanwhile.
		nth = -1
	}
	a := Answer{Status: 418, Headers: [][2]string{{"X-Unexpected-Request", "1"}}}
	if nth >= 0 {
		a = s.answers[nth]
	}
	if a.DelayMS > 0 {
		select {
		case <-time.After(time.Duration(a.DelayMS) * time.Millisecond):
		case <-s.done:
			return EndClose
		}
	}
	if a.Do != "" && a.Do != DoAnswer {
		return a.Do
	}
	if a.write(conn) != nil {
		return EndClose
	}
	if a.End == "" {
		return EndKeep
	}
	return a.End
}
