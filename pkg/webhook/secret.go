package webhook

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	redacted     = "[redacted]"
)

// ErrSecretInvalid is returned for a text that is not a signing secret. It never carries the text.
var ErrSecretInvalid = errors.New("not a webhook signing secret")

// Secret is an endpoint's signing secret: "whsec_" and the standard base64, with padding, of 32 random bytes. It prints,
// logs and marshals as "[redacted]"; only Reveal gives the text. The zero Secret is none at all.
type Secret struct {
	// Two secrets are compared with Equal: == on the pointer below would answer false for the same text.
	_ [0]func()
	// fmt reaches into unexported fields of other structs without asking Format. For a pointer it prints an address
	// there, but with a verb that does not suit a pointer what it points to, hence one more step.
	m **material
}

type material struct {
	text string
	// ascii is the key of ApiPay-Signature, the whole text; decoded is the key of the Standard Webhooks headers.
	ascii   []byte
	decoded []byte
}

// NewSecret makes a secret from the system's random source.
func NewSecret() Secret {
	var key [secretBytes]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the program instead
	return newSecret(key[:])
}

// ParseSecret reads the text that Reveal gave.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, ErrSecretInvalid
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	// The decoder skips line breaks, hence the comparison with the one spelling.
	if err != nil || len(key) != secretBytes || base64.StdEncoding.EncodeToString(key) != encoded {
		return Secret{}, ErrSecretInvalid
	}
	return newSecret(key), nil
}

func newSecret(key []byte) Secret {
	text := secretPrefix + base64.StdEncoding.EncodeToString(key)
	m := &material{text: text, ascii: []byte(text), decoded: key}
	return Secret{m: &m}
}

// Reveal gives the text. It belongs in the answer that creates the secret, and nowhere else.
func (s Secret) Reveal() string {
	if s.m == nil {
		return ""
	}
	return (*s.m).text
}

// IsZero says that s is no secret.
func (s Secret) IsZero() bool { return s.m == nil }

// Equal compares in constant time.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// Format writes "[redacted]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String is "[redacted]".
func (s Secret) String() string { return redacted }

// LogValue is "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText gives "[redacted]", also to JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
