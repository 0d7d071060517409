package httpapi

import (
	"bytes"
	"net"
	"regexp"
	"strconv"

	"apipay.io/hub/pkg/id"
)

// problemListener makes the answers that net/http gives before any handler
// runs (a malformed request line, a header value with a control character,
// headers that are too large) problem documents like every other answer.
// net/http offers no hook for them, but writes each of them straight to the
// connection in one piece that no handler's answer can look like: it has no
// Date. Should a later Go version write them otherwise, they pass unchanged.
type problemListener struct{ net.Listener }

func (l problemListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &problemConn{TCPConn: tcp}, nil
	}
	return conn, nil
}

// problemConn keeps the methods of TCPConn that net/http looks for, such as
// CloseWrite and ReadFrom.
type problemConn struct {
	*net.TCPConn
	// received is what was read last, in the buffer of who reads. It is looked at
	// only while net/http answers to it, by the goroutine that has read it: while a
	// handler runs, another one reads ahead.
	received []byte
}

func (c *problemConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.received = b[:n]
	return n, err
}

var rawErrorHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

func (c *problemConn) Write(b []byte) (int, error) {
	answer, ok := rawErrorProblem(b, func() []byte { return c.received })
	if !ok {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}

// expectationFailed is how net/http answers an Expect that it does not know. No
// handler answers 417.
var expectationFailed = []byte("HTTP/1.1 417 Expectation Failed\r\n")

// rawErrorProblem recognises net/http's own error answer to what was received, and
// rewrites it.
func rawErrorProblem(b []byte, received func() []byte) ([]byte, bool) {
	if bytes.HasPrefix(b, expectationFailed) {
		return rawProblem(CodeInvalidRequest, "Of the expectations only 100-continue is met.")
	}
	statusLine, _, found := bytes.Cut(b, rawErrorHeaders)
	text, isHTTP := bytes.CutPrefix(statusLine, []byte("HTTP/1.1 "))
	if !found || !isHTTP || bytes.ContainsAny(statusLine, "\r\n") || len(text) < 3 {
		return nil, false
	}
	status, err := strconv.Atoi(string(text[:3]))
	if err != nil || status < 400 {
		return nil, false
	}
	code, detail := CodeInvalidRequest, "The request is not valid HTTP."
	switch {
	case status == 431:
		code, detail = CodePayloadTooLarge, "The request headers are too large."
	case controlInKey.Match(received()):
		code, detail = CodeIdempotencyKeyInvalid, "The Idempotency-Key contains a control character."
	}
	return rawProblem(code, detail)
}

// controlInKey is a key with a character for which net/http refuses the whole
// request, without naming the header.
var controlInKey = regexp.MustCompile(`(?i)\nidempotency-key:[^\r\n]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]`)

// rawProblem is a whole answer, after which the connection is closed.
func rawProblem(code Code, detail string) ([]byte, bool) {
	requestID := id.Format(id.Request, id.New())
	p := New(code, detail).Complete("", requestID, "")
	body, err := p.Encode()
	if err != nil {
		return nil, false
	}
	var out bytes.Buffer
	out.WriteString("HTTP/1.1 " + strconv.Itoa(p.Status) + " " + p.Title +
		"\r\nContent-Type: " + MediaTypeProblem +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\n" + HeaderRequestID + ": " + requestID +
		"\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n")
	out.Write(body)
	return out.Bytes(), true
}
