package httpapi

import (
	"bytes"
	"net"
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
		return problemConn{tcp}, nil
	}
	return conn, nil
}

// problemConn keeps the methods of TCPConn that net/http looks for, such as
// CloseWrite and ReadFrom.
type problemConn struct{ *net.TCPConn }

var rawErrorHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

func (c problemConn) Write(b []byte) (int, error) {
	answer, ok := rawErrorProblem(b)
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

// rawErrorProblem recognises net/http's own error answer and rewrites it.
func rawErrorProblem(b []byte) ([]byte, bool) {
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
	if status == 431 {
		code, detail = CodePayloadTooLarge, "The request headers are too large."
	}
	return rawProblem(code, detail)
}

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
