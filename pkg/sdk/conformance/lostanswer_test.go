package conformance

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The proxy swallows the first answer only after the API has done the work, and passes on all others.
func TestCuttingProxy(t *testing.T) {
	t.Parallel()
	api := start(t, Answer{Status: 201, Body: "first"}, Answer{Status: 200, Body: "second"}, Answer{Status: 200, Body: "third"})
	proxy, err := startCuttingProxy(t.Context(), api.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", proxy.listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
		return conn
	}
	conn := connect()
	_, err = io.WriteString(conn, post)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Empty(t, answer)
	require.Equal(t, int64(1), proxy.cut.Load())
	require.Len(t, api.Snapshot().Requests, 1)

	conn = connect()
	in := bufio.NewReader(conn)
	chunked := strings.Replace(post, "Content-Length: 2\r\n\r\n{}", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", 1)
	for _, exchange := range [][2]string{{chunked, "second"}, {post, "third"}} {
		_, err = io.WriteString(conn, exchange[0])
		require.NoError(t, err)
		answer, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, exchange[1], string(body))
	}
	wire := api.Snapshot()
	require.Len(t, wire.Requests, 3)
	for _, r := range wire.Requests {
		require.Equal(t, "{}", string(r.Body))
	}
}
