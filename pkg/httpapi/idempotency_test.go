package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseIdempotencyKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sent []string
		want string // "" means idempotency_key_invalid
	}{
		"bare":                  {[]string{"8e03-x"}, "8e03-x"},
		"quoted":                {[]string{`"8e03-x"`}, "8e03-x"},
		"escapes":               {[]string{`"a\"b\\c"`}, `a"b\c`},
		"bare with inner quote": {[]string{`a"b\c`}, `a"b\c`},
		"outer whitespace":      {[]string{" k\t"}, "k"},
		"comma is visible":      {[]string{"a,b"}, "a,b"},
		"255":                   {[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255)},
		"255 quoted":            {[]string{`"` + strings.Repeat("k", 255) + `"`}, strings.Repeat("k", 255)},
		"256":                   {[]string{strings.Repeat("k", 256)}, ""},
		"256 quoted":            {[]string{`"` + strings.Repeat("k", 256) + `"`}, ""},
		"255 after escapes":     {[]string{`"` + strings.Repeat(`\\`, 255) + `"`}, strings.Repeat(`\`, 255)},
		"empty":                 {[]string{""}, ""},
		"only whitespace":       {[]string{"  "}, ""},
		"quoted empty":          {[]string{`""`}, ""},
		"space inside":          {[]string{"a b"}, ""},
		"space quoted":          {[]string{`"a b"`}, ""},
		"control":               {[]string{"a\x01b"}, ""},
		"DEL":                   {[]string{"a\x7f"}, ""},
		"NUL":                   {[]string{"a\x00b"}, ""},
		"CRLF":                  {[]string{"a\r\nb"}, ""},
		"non-ASCII":             {[]string{"schlüssel"}, ""},
		"unclosed":              {[]string{`"abc`}, ""},
		"one quote":             {[]string{`"`}, ""},
		"closing escaped":       {[]string{`"abc\"`}, ""},
		"bad escape":            {[]string{`"a\nb"`}, ""},
		"text after":            {[]string{`"abc"d`}, ""},
		"parameters":            {[]string{`"abc";x=1`}, ""},
		"two strings":           {[]string{`"a""b"`}, ""},
		"repeated":              {[]string{"a", "b"}, ""},
		"repeated same":         {[]string{"a", "a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, present, p := ParseIdempotencyKey(http.Header{HeaderIdempotencyKey: tc.sent})
			require.True(t, present)
			if tc.want == "" {
				requireProblem(t, p, CodeIdempotencyKeyInvalid, HeaderIdempotencyKey)
				require.Empty(t, key)
				return
			}
			require.Nil(t, p)
			require.Equal(t, tc.want, key)
		})
	}
}

func TestRequireIdempotencyKey(t *testing.T) {
	t.Parallel()
	_, present, p := ParseIdempotencyKey(http.Header{})
	require.False(t, present)
	require.Nil(t, p)

	_, err := RequireIdempotencyKey(http.Header{})
	requireProblem(t, err, CodeIdempotencyKeyRequired, HeaderIdempotencyKey)
	_, err = RequireIdempotencyKey(http.Header{HeaderIdempotencyKey: {""}})
	requireProblem(t, err, CodeIdempotencyKeyInvalid, HeaderIdempotencyKey)
	key, err := RequireIdempotencyKey(http.Header{HeaderIdempotencyKey: {"k"}})
	require.NoError(t, err)
	require.Equal(t, "k", key)
}

// FuzzParseIdempotencyKey: every accepted key is storable, and quoting it by
// the RFC gives the same key.
func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "k", `"k"`, `"a\"b"`, `"`, `"\`, "a b", "ü", "\x00", strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, present, p := ParseIdempotencyKey(http.Header{HeaderIdempotencyKey: {value}})
		require.True(t, present)
		if p != nil {
			require.Equal(t, 400, p.Status)
			return
		}
		require.Regexp(t, `\A[\x21-\x7e]{1,255}\z`, key)
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		again, _, p := ParseIdempotencyKey(http.Header{HeaderIdempotencyKey: {quoted}})
		require.Nil(t, p)
		require.Equal(t, key, again)
	})
}
