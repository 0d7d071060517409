package apipay

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a webhook endpoint's signing secret. It prints, logs and marshals as "[redacted]"; Reveal gives the text. The
// zero Secret is none.
type Secret struct {
	// A function, because fmt reaches into fields without asking Format (a pointer's with a verb like %s): of a function it
	// prints the address, of anything else in the end the text.
	reveal func() string
}

// NewSecret wraps a secret's text.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{reveal: func() string { return text }}
}

// Reveal gives the text.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero says that there is no secret.
func (s Secret) IsZero() bool { return s.reveal == nil }

// String is "[redacted]", or "" if there is no secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText gives String, also to JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the text.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}
