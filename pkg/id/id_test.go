package id_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"apipay.io/hub/pkg/id"
)

func TestFormatAndParse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		text := id.Format(id.PaymentIntent, u)
		back, err := id.Parse(id.PaymentIntent, text)
		require.NoError(t, err)
		require.Equal(t, u, back)
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	good := id.Format(id.Event, id.New())
	for name, text := range map[string]string{
		"empty":           "",
		"other kind":      id.Format(id.Refund, id.New()),
		"no prefix":       strings.TrimPrefix(good, "evt_"),
		"upper case":      strings.ToUpper(good),
		"one too long":    good + "0",
		"one too short":   good[:len(good)-1],
		"overflow":        "evt_8zzzzzzzzzzzzzzzzzzzzzzzzz",
		"not base32":      "evt_0000000000000000000000000u",
		"ambiguous digit": "evt_0000000000000000000000000o",
		"uuid text":       "evt_" + id.New().String(),
		"quote":           "evt_' OR 1=1; --00000000000000",
		"multi-byte":      "evt_" + strings.Repeat("é", 13),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := id.Parse(id.Event, text)
			require.ErrorIs(t, err, id.ErrInvalid)
		})
	}
}

func TestNewAt(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_900_000_000_123)
	var previous uuid.UUID
	for order := range uint16(4096) {
		u := id.NewAt(at, order)
		require.Equal(t, uuid.Version(7), u.Version())
		require.Equal(t, uuid.RFC4122, u.Variant())
		require.True(t, id.Time(u).Equal(at))
		require.Negative(t, bytes.Compare(previous[:], u[:]), "order %d", order)
		low, high := id.SameMillisecond(u)
		require.Negative(t, bytes.Compare(low[:], u[:]))
		require.Positive(t, bytes.Compare(high[:], u[:]))
		previous = u
	}
}
