//go:build bench

package bench

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// countStatements stands between the services and Postgres and counts what is executed there: Execute and Query messages.
func (c *chain) countStatements(t testing.TB) *atomic.Int64 {
	t.Helper()
	u, err := url.Parse(c.db.Worker)
	require.NoError(t, err)
	upstream := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = listener.Addr().String()
	c.worker = u.String()
	var count atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				continue
			}
			serving.Go(func() { _, _ = io.Copy(client, server); client.Close(); server.Close() })
			serving.Go(func() { forward(server, client, &count); client.Close(); server.Close() })
		}
	})
	t.Cleanup(func() { listener.Close() })
	return &count
}

// forward passes on the frontend's messages: a start-up message without a type, then one byte of type and a length each.
func forward(to io.Writer, from io.Reader, count *atomic.Int64) {
	header := make([]byte, 5)
	for typed := 0; ; typed = 1 {
		if _, err := io.ReadFull(from, header[:4+typed]); err != nil {
			return
		}
		length := int64(binary.BigEndian.Uint32(header[typed:4+typed])) - 4
		if typed == 1 && (header[0] == 'E' || header[0] == 'Q') {
			count.Add(1)
		}
		if _, err := to.Write(header[:4+typed]); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, length); err != nil {
			return
		}
	}
}
