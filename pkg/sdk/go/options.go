package apipay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// visibleASCII is every character that a key may have.
var visibleASCII = func() string {
	var b strings.Builder
	for c := byte(0x21); c <= 0x7e; c++ {
		b.WriteByte(c)
	}
	return b.String()
}()

// RequestOption sets an option of one call.
type RequestOption func(*requestOptions) error

type requestOptions struct {
	key      string
	timeout  time.Duration
	header   http.Header
	response *Response
}

// Response is what a successful call was answered with, besides the object.
type Response struct {
	// Status is 201 for what was created and 202 while an outcome is unknown.
	Status         int
	RequestID      string
	IdempotencyKey string
	// Replayed says that the key was known: the answer is that of the first call.
	Replayed bool
	Attempts int
}

// WithIdempotencyKey sets the key of a POST: 1 to 255 visible ASCII characters, sent as it is. Without it each call gets a
// new UUID v4. After an error, call again with Error.IdempotencyKey.
func WithIdempotencyKey(key string) RequestOption {
	return func(o *requestOptions) error {
		if key == "" || len(key) > 255 || strings.Trim(key, visibleASCII) != "" {
			return errors.New("an idempotency key is 1 to 255 visible ASCII characters")
		}
		o.key = key
		return nil
	}
}

// WithRequestTimeout limits each attempt of this call, in place of the client's timeout.
func WithRequestTimeout(d time.Duration) RequestOption {
	return func(o *requestOptions) error {
		if d <= 0 {
			return errors.New("a timeout must be positive")
		}
		o.timeout = d
		return nil
	}
}

// reservedHeaders are the SDK's own.
var reservedHeaders = map[string]bool{
	"Authorization": true, "Idempotency-Key": true, "Host": true, "Content-Length": true, "Content-Type": true,
	"Transfer-Encoding": true, "Connection": true, "Trailer": true, "Expect": true, "Upgrade": true,
}

// WithHeader adds a header to the call. The SDK's own headers cannot be set.
func WithHeader(name, value string) RequestOption {
	return func(o *requestOptions) error {
		if name == "" || strings.Trim(name, headerNameCharacters) != "" {
			return errors.New("that is not a header's name")
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return errors.New("a header's value has no line break")
		}
		canonical := http.CanonicalHeaderKey(name)
		if reservedHeaders[canonical] {
			return fmt.Errorf("the SDK sets %s itself", canonical)
		}
		o.header.Set(canonical, value)
		return nil
	}
}

// headerNameCharacters are those of a token (RFC 9110 §5.6.2).
const headerNameCharacters = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// WithResponse stores what a successful call was answered with.
func WithResponse(response *Response) RequestOption {
	return func(o *requestOptions) error { o.response = response; return nil }
}

// newKey is a random UUID v4.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
