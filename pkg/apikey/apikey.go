// Package apikey is the form of the merchants' API keys: admin-api makes them, payment-api recognizes them.
//
// A key is "apk_test_" or "apk_live_", 43 characters of base62 (32 random bytes) and 6 characters of base62 (the CRC-32
// of everything before them). The checksum lets scanners for leaked secrets, and payment-api before it asks the database,
// tell a key from text that only looks like one. It is no protection: the 32 bytes are.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/big"
	"strings"
)

const (
	testPrefix = "apk_test_"
	livePrefix = "apk_live_"

	randomBytes = 32
	// 62^43 > 2^256 and 62^6 > 2^32.
	randomChars   = 43
	checksumChars = 6
	length        = len(testPrefix) + randomChars + checksumChars

	base62   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	redacted = "[redacted]"
)

// ErrInvalid is returned for a text that is not an API key. It never carries the text.
var ErrInvalid = errors.New("not an API key")

// The scopes that a key can have. None includes another one.
const (
	PaymentIntentsRead    = "payment_intents:read"
	PaymentIntentsWrite   = "payment_intents:write"
	RefundsRead           = "refunds:read"
	RefundsWrite          = "refunds:write"
	WebhookEndpointsRead  = "webhook_endpoints:read"
	WebhookEndpointsWrite = "webhook_endpoints:write"
	EventsRead            = "events:read"
)

// Scopes answers every scope.
func Scopes() []string {
	return []string{
		PaymentIntentsRead, PaymentIntentsWrite, RefundsRead, RefundsWrite,
		WebhookEndpointsRead, WebhookEndpointsWrite, EventsRead,
	}
}

// Key is a new API key. It prints, logs and marshals as "[redacted]"; only Reveal gives the text. The zero Key is none.
type Key struct {
	_ [0]func()
	// A pointer, because fmt reaches into unexported fields of other structs without asking Format, and prints an
	// address for a pointer there.
	text *string
}

// New makes a key from the system's random source.
func New(livemode bool) Key {
	var secret [randomBytes]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	prefix := testPrefix
	if livemode {
		prefix = livePrefix
	}
	text := prefix + encode(new(big.Int).SetBytes(secret[:]), randomChars)
	text += checksum(text)
	return Key{text: &text}
}

// Reveal gives the text. It belongs in the answer that creates the key, and nowhere else.
func (k Key) Reveal() string {
	if k.text == nil {
		return ""
	}
	return *k.text
}

// Hash is the SHA-256 of the text: what the database keeps. A slow hash would add nothing to 256 random bits.
func (k Key) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(k.Reveal())) }

// Last4 are the last four characters, by which people tell keys apart. They belong to the checksum.
func (k Key) Last4() string {
	text := k.Reveal()
	if len(text) < length {
		return ""
	}
	return text[length-4:]
}

// Parse recognizes a key by its form alone and gives its mode and hash; whether it exists only the database knows. It
// fails with [ErrInvalid].
func Parse(text string) (livemode bool, hash [sha256.Size]byte, err error) {
	if len(text) != length {
		return false, hash, ErrInvalid
	}
	switch {
	case strings.HasPrefix(text, livePrefix):
		livemode = true
	case !strings.HasPrefix(text, testPrefix):
		return false, hash, ErrInvalid
	}
	for _, c := range []byte(text[len(testPrefix):]) {
		if strings.IndexByte(base62, c) < 0 {
			return false, hash, ErrInvalid
		}
	}
	body := text[:length-checksumChars]
	if text[length-checksumChars:] != checksum(body) {
		return false, hash, ErrInvalid
	}
	return livemode, sha256.Sum256([]byte(text)), nil
}

// Format writes "[redacted]" for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String is "[redacted]".
func (k Key) String() string { return redacted }

// LogValue is "[redacted]".
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText gives "[redacted]", also to JSON.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

func checksum(body string) string {
	return encode(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), checksumChars)
}

// encode writes n in base62 with leading zeros.
func encode(n *big.Int, width int) string {
	out := make([]byte, width)
	base, digit := big.NewInt(int64(len(base62))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}
