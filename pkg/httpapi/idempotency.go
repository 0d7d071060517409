package httpapi

import (
	"net/http"
	"strings"
)

// HeaderIdempotencyKey is the header that binds a request to its one outcome.
const HeaderIdempotencyKey = "Idempotency-Key"

const maxIdempotencyKey = 255

// ParseIdempotencyKey reads the key: 1 to 255 visible ASCII characters, bare
// or as an RFC 8941 string, both meaning the same key. present is false if the
// header is absent, which only the caller can judge. A repeated header is
// refused, since Go would silently take the first of two.
//
// A value that starts with a quote must be a whole RFC 8941 string.
func ParseIdempotencyKey(h http.Header) (key string, present bool, err *Problem) {
	values := h.Values(HeaderIdempotencyKey)
	if len(values) == 0 {
		return "", false, nil
	}
	if len(values) > 1 {
		return "", true, keyInvalid("The header was sent more than once.")
	}
	// net/http has trimmed the optional whitespace around a field value; a
	// header set in-process may still have it.
	raw := strings.Trim(values[0], " \t")
	key = raw
	if strings.HasPrefix(raw, `"`) {
		var ok bool
		if key, ok = unquoteSFString(raw); !ok {
			return "", true, keyInvalid("The quoted key is not a valid RFC 8941 string.")
		}
	}
	if key == "" {
		return "", true, keyInvalid("The key is empty.")
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return "", true, keyInvalid("The key may contain visible ASCII characters only.")
		}
	}
	if len(key) > maxIdempotencyKey {
		return "", true, keyInvalid("The key is longer than 255 characters.")
	}
	return key, true, nil
}

// RequireIdempotencyKey is ParseIdempotencyKey for the routes that move money.
func RequireIdempotencyKey(h http.Header) (string, error) {
	key, present, err := ParseIdempotencyKey(h)
	if err != nil {
		return "", err
	}
	if !present {
		detail := "Send an Idempotency-Key header with this request."
		return "", New(CodeIdempotencyKeyRequired, detail).
			WithErrors(FieldError{Header: HeaderIdempotencyKey, Code: CodeIdempotencyKeyRequired})
	}
	return key, nil
}

func keyInvalid(detail string) *Problem {
	return New(CodeIdempotencyKeyInvalid, "Idempotency-Key: "+detail).
		WithErrors(FieldError{Header: HeaderIdempotencyKey, Code: CodeIdempotencyKeyInvalid})
}

// unquoteSFString undoes RFC 8941 §3.3.3: only \" and \\ are escapes.
func unquoteSFString(s string) (string, bool) {
	if len(s) < 2 || s[len(s)-1] != '"' {
		return "", false
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		switch s[i] {
		case '"':
			return "", false
		case '\\':
			i++
			// The closing quote itself cannot be escaped away.
			if i == len(s)-1 || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return b.String(), true
}
