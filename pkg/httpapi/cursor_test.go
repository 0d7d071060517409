package httpapi

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func testCursors(t testing.TB) *Cursors {
	c, err := NewCursors([]byte("0123456789abcdef"))
	require.NoError(t, err)
	return c
}

func TestCursors(t *testing.T) {
	t.Parallel()
	c := testCursors(t)
	scope := CursorScope("tnt_a", "test", "payment_intents", "status=succeeded")
	want := Position{Time: time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.UTC), ID: uuid.Must(uuid.NewV7())}
	text := c.Encode(scope, want)
	got, err := c.Decode(scope, text)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Regexp(t, `^[A-Za-z0-9_-]+$`, text, "needs no escaping in a URL")
	require.Equal(t, text, c.Encode(scope, Position{want.Time.In(time.FixedZone("x", 3600)), want.ID}))

	other, err := NewCursors([]byte("another key of enough bytes"))
	require.NoError(t, err)
	refused := map[string]string{
		"empty": "", "unknown": "abc", "uuid": want.ID.String(),
		"other key": other.Encode(scope, want), "cut": text[:len(text)-1], "longer": text + "A", "padded": text + "=",
		"newline": text[:10] + "\n" + text[11:], "not ASCII": "é" + text[2:],
	}
	for _, parts := range [][]string{
		{"tnt_b", "test", "payment_intents", "status=succeeded"},
		{"tnt_a", "live", "payment_intents", "status=succeeded"},
		{"tnt_a", "test", "refunds", "status=succeeded"},
		{"tnt_a", "test", "payment_intents"},
		{"tnt_at", "est", "payment_intents", "status=succeeded"},
	} {
		refused["scope "+parts[0]+parts[1]+parts[2]] = c.Encode(CursorScope(parts...), want)
	}
	for name, cursor := range refused {
		_, err := c.Decode(scope, cursor)
		p := requireProblem(t, err, CodeCursorInvalid, "cursor")
		require.Equal(t, 400, p.Status, name)
	}
	for i := range len(text) {
		for _, b := range []byte("Aa0_") {
			if text[i] == b {
				continue
			}
			_, err := c.Decode(scope, text[:i]+string(b)+text[i+1:])
			require.Error(t, err, "a changed character at %d", i)
		}
	}

	_, err = NewCursors([]byte("short"))
	require.Error(t, err)
}

func FuzzCursor(f *testing.F) {
	c := testCursors(f)
	good := c.Encode("scope", Position{Time: time.UnixMicro(1), ID: uuid.UUID{1}})
	f.Add(good)
	f.Add("")
	f.Add(good[:20])
	f.Add("AQ" + good[2:])
	f.Fuzz(func(t *testing.T, text string) {
		p, err := c.Decode("scope", text)
		if err != nil {
			requireProblem(t, err, CodeCursorInvalid, "cursor")
			return
		}
		require.Equal(t, text, c.Encode("scope", p), "one position has one cursor")
	})
}
