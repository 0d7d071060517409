package httpapi

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/ops"
)

// What can be refused from the headers alone is refused at once, as a problem, with the body still to come.
func TestRefusesBeforeTheBody(t *testing.T) {
	t.Parallel()
	e := NewEcho(Options{})
	e.POST("/open", func(c echo.Context) error {
		if _, err := ReadBody(c); err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	})
	e.POST("/closed", func(echo.Context) error { return New(CodeAuthenticationFailed, "") })
	listener, err := ops.Listen(t.Context(), "x", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Second, DisableGeneralOptionsHandler: true}
	done := make(chan error, 1)
	go func() { done <- server.Serve(problemListener{listener}) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	for name, test := range map[string]struct {
		request string
		status  int
		code    Code
	}{
		"length above the limit": {"POST /open HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 70000\r\n\r\nx", 413, CodePayloadTooLarge},
		"with 100-continue":      {"POST /open HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n", 413, CodePayloadTooLarge},
		"without a key":          {"POST /closed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", 401, CodeAuthenticationFailed},
		"without a key, chunked": {"POST /closed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{", 401, CodeAuthenticationFailed},
		"no such route":          {"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", 404, CodeNotFound},
		"unknown expectation":    {"POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: foo\r\n\r\n{}", 400, CodeInvalidRequest},
		"OPTIONS of everything":  {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404, CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(3*time.Second)))
			_, err = conn.Write([]byte(test.request))
			require.NoError(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, test.status, response.StatusCode)
			require.Equal(t, MediaTypeProblem, response.Header.Get("Content-Type"))
			require.NotEmpty(t, response.Header.Get(HeaderRequestID))
			var p struct{ Code Code }
			require.NoError(t, json.NewDecoder(response.Body).Decode(&p))
			require.Equal(t, test.code, p.Code)
		})
	}
}
