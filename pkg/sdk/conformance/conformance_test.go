package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every acceptance case of the SDKs has a vector.
func TestVectorsCoverCases(t *testing.T) {
	t.Parallel()
	vectors, err := Load()
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, v := range vectors {
		for _, name := range v.Cases {
			covered[name] = true
		}
	}
	var want []string
	for n := 1; n <= 28; n++ {
		if n != 12 { // there is no F12
			want = append(want, fmt.Sprintf("F%d", n))
		}
	}
	for n := 1; n <= 7; n++ {
		want = append(want, fmt.Sprintf("G%d", n))
	}
	want = append(want, "S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9", "S11", "S12", "W14", "B82", "B84", "B85", "B86", "B87", "B88")
	want = slices.DeleteFunc(want, func(name string) bool { return covered[name] })
	require.Empty(t, want, "cases without a vector")
}

// A vector that names a language or a matcher that does not exist would silently expect nothing.
func TestVectorsNameWhatExists(t *testing.T) {
	t.Parallel()
	vectors, err := Load()
	require.NoError(t, err)
	languages, err := Languages()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, l := range languages {
		known[l.Name] = true
		for _, v := range l.Runners {
			known[l.Name+"/"+v.Name] = true
		}
	}
	operators := []string{
		"$any", "$absent", "$one_of", "$min", "$max", "$uuid4", "$pattern", "$length", "$each", "$some", "$contains_none", "$header", "$samples",
	}
	var look func(id string, v any)
	look = func(id string, v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				look(id, item)
			}
		case map[string]any:
			for name, item := range v {
				if strings.HasPrefix(name, "$") {
					require.Contains(t, operators, name, id)
				}
				look(id, item)
			}
		}
	}
	for _, v := range vectors {
		for name := range v.ByLanguage {
			require.True(t, known[name], "%s names %q", v.ID, name)
		}
		for _, raw := range append(slices.Clone(v.Expect.Steps), v.Expect.Wire) {
			if raw == nil {
				continue
			}
			expected, err := decode(raw)
			require.NoError(t, err, v.ID)
			look(v.ID, expected)
		}
	}
}

func start(t *testing.T, answers ...Answer) *Server {
	t.Helper()
	s, err := StartServer(t.Context(), ModePlain, answers)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// dial gives a connection and how to send on it and read one answer.
func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	return conn
}

const post = "POST /v1/x HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\n{}"

func TestServerRecordsTheWire(t *testing.T) {
	t.Parallel()
	s := start(t, Answer{Status: 200, Body: "ok"}, Answer{Status: 201, JSON: json.RawMessage(`{}`), Chunked: true})
	conn := dial(t, s)
	in := bufio.NewReader(conn)
	for _, want := range []string{"ok", "{}"} {
		_, err := io.WriteString(conn, post)
		require.NoError(t, err)
		answer, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
	wire := s.Snapshot()
	require.Len(t, wire.Requests, 2)
	require.Equal(t, 1, wire.Connections)
	require.False(t, wire.Requests[0].Reused)
	require.True(t, wire.Requests[1].Reused)
	require.Equal(t, []string{"1", "2"}, wire.Requests[0].Header("X-A"))
	require.Equal(t, "{}", string(wire.Requests[0].Body))
	require.Equal(t, int64(2*len(post)), wire.BytesReceived)
}

func TestServerEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		answer Answer
		want   string
		err    error
	}{
		"FIN after the request":  {Answer{Do: EndClose}, "", nil},
		"RST after the request":  {Answer{Do: EndReset}, "", syscall.ECONNRESET},
		"FIN within the body":    {Answer{Status: 200, Body: "hello", Truncate: new(int64), End: EndClose}, "HTTP/1.1 200 Scripted\r\nContent-Length: 5\r\n\r\n", nil},
		"chunked, no last chunk": {Answer{Status: 200, Body: "hello", Chunked: true, Truncate: pointer(2), End: EndClose}, "HTTP/1.1 200 Scripted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, start(t, c.answer))
			_, err := io.WriteString(conn, post)
			require.NoError(t, err)
			got, err := io.ReadAll(conn)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, string(got))
		})
	}
}

func pointer(n int64) *int64 { return &n }

func TestServerModes(t *testing.T) {
	t.Parallel()
	refuse, err := StartServer(t.Context(), ModeRefuse, nil)
	require.NoError(t, err)
	t.Cleanup(refuse.Close)
	_, err = net.DialTimeout("tcp", refuse.listener.Addr().String(), time.Second)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	full, err := StartServer(t.Context(), ModeConnectTimeout, nil)
	require.NoError(t, err)
	t.Cleanup(full.Close)
	_, err = net.DialTimeout("tcp", full.listener.Addr().String(), 100*time.Millisecond)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
}

func TestMatcher(t *testing.T) {
	t.Parallel()
	wire := Wire{Requests: []Request{{Headers: [][2]string{{"idempotency-key", "k1"}}}}}
	cases := []struct {
		want, got string
		fits      bool
	}{
		{`{"a":1}`, `{"a":1.0,"b":2}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":null}`, `{}`, true},
		{`{"a":null}`, `{"a":0}`, false},
		{`{"a":1}`, `{}`, false},
		{`[1,2]`, `[1]`, false},
		{`{"a":{"$absent":true}}`, `{"a":null}`, true},
		{`{"a":{"$absent":true}}`, `{"a":""}`, false},
		{`{"a":{"$any":true}}`, `{}`, false},
		{`{"$one_of":[1,{"x":2}]}`, `{"x":2}`, true},
		{`{"$one_of":[1,2]}`, `3`, false},
		{`{"$min":1,"$max":2}`, `2`, true},
		{`{"$min":1,"$max":2}`, `2.1`, false},
		{`{"$min":1}`, `"x"`, false},
		{`{"$uuid4":true}`, `"0b0e7a5e-8f0e-4c3e-9d7e-3a9f0f5c1b2a"`, true},
		{`{"$uuid4":true}`, `"0b0e7a5e-8f0e-1c3e-9d7e-3a9f0f5c1b2a"`, false},
		{`{"$header":[0,"Idempotency-Key"]}`, `"k1"`, true},
		{`{"$header":[0,"Idempotency-Key"]}`, `"k2"`, false},
		{`{"$header":[1,"Idempotency-Key"]}`, `"k1"`, false},
		{`{"$each":{"$contains_none":["Key"]}}`, `["a","b"]`, true},
		{`{"$each":{"$contains_none":["Key"]}}`, `["a","my key"]`, false},
		{`{"$some":{"$pattern":"^b"}}`, `["a","b"]`, true},
		{`{"$some":{"$pattern":"^c"}}`, `["a","b"]`, false},
		{`{"$unheard":1}`, `1`, false},
	}
	for _, c := range cases {
		want, err := decode([]byte(c.want))
		require.NoError(t, err)
		got, err := decode([]byte(c.got))
		require.NoError(t, err)
		m := matcher{wire: wire}
		m.match("x", want, got, true)
		require.Equal(t, c.fits, len(m.wrong) == 0, "%s on %s: %v", c.want, c.got, m.wrong)
	}
}
