package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsLineText(t *testing.T) {
	t.Parallel()
	for _, r := range "aé😀 \u00a0\u200d\u202e" {
		require.True(t, IsLineText(r), "%U", r)
	}
	for _, r := range "\x00\x07\t\n\r\x1f\x7f\u0080\u0085\u009f\u2028\u2029" {
		require.False(t, IsLineText(r), "%U", r)
	}
}
