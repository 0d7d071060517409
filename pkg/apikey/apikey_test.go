package apikey_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
)

func TestKey_RoundTrip(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 2000 {
		live := i%2 == 0
		key := apikey.New(live)
		text := key.Reveal()
		require.Regexp(t, regexp.MustCompile(`^apk_(test|live)_[0-9A-Za-z]{49}$`), text)
		require.Equal(t, live, strings.HasPrefix(text, "apk_live_"))
		livemode, hash, err := apikey.Parse(text)
		require.NoError(t, err)
		require.Equal(t, live, livemode)
		require.Equal(t, sha256.Sum256([]byte(text)), hash)
		require.Equal(t, hash, key.Hash())
		require.Equal(t, text[len(text)-4:], key.Last4())
		require.False(t, seen[text])
		seen[text] = true
	}
}

func TestParse_RefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	good := apikey.New(false).Reveal()
	for name, text := range map[string]string{
		"empty":           "",
		"prefix only":     "apk_test_",
		"other mode":      strings.Replace(good, "apk_test_", "apk_live_", 1),
		"other prefix":    strings.Replace(good, "apk_test_", "apk_demo_", 1),
		"upper prefix":    strings.Replace(good, "apk_test_", "APK_TEST_", 1),
		"too short":       good[:len(good)-1],
		"too long":        good + "0",
		"space behind":    good + " ",
		"line feed":       good[:len(good)-1] + "\n",
		"10 kB":           good + strings.Repeat("a", 10_000),
		"not base62":      good[:20] + "-" + good[21:],
		"NUL":             good[:20] + "\x00" + good[21:],
		"not ASCII":       good[:20] + "é" + good[22:],
		"sql":             "apk_test_' OR 1=1; --" + strings.Repeat("0", 37),
		"checksum zeroed": good[:len(good)-6] + "zzzzzz",
	} {
		_, hash, err := apikey.Parse(text)
		require.ErrorIs(t, err, apikey.ErrInvalid, name)
		require.Zero(t, hash, name)
	}
	// Any one character changed is noticed: CRC-32 finds every burst of up to 32 bits.
	for i := len("apk_test_"); i < len(good); i++ {
		other := byte('a')
		if good[i] == other {
			other = 'b'
		}
		_, _, err := apikey.Parse(good[:i] + string(other) + good[i+1:])
		require.ErrorIs(t, err, apikey.ErrInvalid, i)
	}
}

func TestKey_ShowsItselfNowhere(t *testing.T) {
	t.Parallel()
	key := apikey.New(true)
	type hidden struct{ key apikey.Key }
	var shown strings.Builder
	for _, value := range []any{key, &key, hidden{key}, []apikey.Key{key}, map[string]apikey.Key{"a": key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			fmt.Fprintf(&shown, verb+"\n", value)
		}
		encoded, err := json.Marshal(value)
		require.NoError(t, err)
		shown.Write(encoded)
	}
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "key", key, "hidden", hidden{key})
	text := shown.String() + logged.String()
	require.NotContains(t, text, key.Reveal())
	require.NotContains(t, text, key.Reveal()[9:])
	require.NotContains(t, text, fmt.Sprintf("%x", key.Reveal()))
	require.Contains(t, text, "[redacted]")
	require.Empty(t, apikey.Key{}.Reveal())
}

func FuzzParse(f *testing.F) {
	f.Add(apikey.New(true).Reveal())
	f.Add("apk_test_")
	f.Fuzz(func(t *testing.T, text string) {
		_, hash, err := apikey.Parse(text)
		if err == nil {
			require.Equal(t, sha256.Sum256([]byte(text)), hash)
		}
	})
}
