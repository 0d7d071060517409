package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewSecret(t *testing.T) {
	t.Parallel()

	t.Run("Is32RandomBytes", func(t *testing.T) {
		t.Parallel()
		text := NewSecret().Reveal()
		encoded, ok := strings.CutPrefix(text, "whsec_")
		require.True(t, ok)
		key, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(t, err)
		require.Len(t, key, 32)
		require.NotEqual(t, text, NewSecret().Reveal())
	})

	t.Run("ParsesWhatItReveals", func(t *testing.T) {
		t.Parallel()
		secret := NewSecret()
		parsed, err := ParseSecret(secret.Reveal())
		require.NoError(t, err)
		require.True(t, parsed.Equal(secret))
		require.False(t, parsed.Equal(NewSecret()))
		require.False(t, parsed.Equal(Secret{}))
		require.True(t, Secret{}.IsZero())
	})
}

func TestParseSecret_RefusesWithoutQuoting(t *testing.T) {
	t.Parallel()
	valid := NewSecret().Reveal()
	for name, text := range map[string]string{
		"empty":          "",
		"no prefix":      strings.TrimPrefix(valid, "whsec_"),
		"other prefix":   "whsk_" + strings.TrimPrefix(valid, "whsec_"),
		"no padding":     strings.TrimSuffix(valid, "="),
		"line break":     valid[:20] + "\n" + valid[20:],
		"31 bytes":       "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"33 bytes":       "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 33)),
		"URL alphabet":   "whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 32)),
		"trailing space": valid + " ",
		"loose last bit": "whsec_" + strings.Repeat("A", 42) + "B=",
	} {
		_, err := ParseSecret(text)
		require.ErrorIs(t, err, ErrSecretInvalid, name)
		require.Equal(t, ErrSecretInvalid.Error(), err.Error(), name)
	}
}

func TestSecret_ShowsItselfNowhere(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	type exported struct{ Secret Secret }
	type hidden struct{ secret Secret }

	var logged bytes.Buffer
	for _, handler := range []slog.Handler{
		slog.NewJSONHandler(&logged, nil), slog.NewTextHandler(&logged, nil),
	} {
		slog.New(handler).Info("x", "a", secret, "b", &secret, "c", exported{secret}, "d", hidden{secret}, "e", []Secret{secret})
	}
	shown := []string{logged.String(), secret.String()}
	for _, value := range []any{secret, &secret, exported{secret}, &exported{secret}, hidden{secret}, &hidden{secret}, []Secret{secret}, map[string]Secret{"a": secret}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown = append(shown, fmt.Sprintf(verb, value))
		}
		encoded, err := json.Marshal(value)
		require.NoError(t, err)
		shown = append(shown, string(encoded))
	}
	asHex := fmt.Sprintf("%x", secret.Reveal())
	for _, text := range shown {
		require.NotContains(t, text, secret.Reveal())
		require.NotContains(t, text, secret.Reveal()[6:])
		require.NotContains(t, text, asHex)
		require.NotContains(t, text, fmt.Sprintf("%x", (*secret.m).decoded))
	}
	require.Equal(t, "[redacted]", fmt.Sprintf("%+v", secret))
	require.Contains(t, logged.String(), "[redacted]")
}
