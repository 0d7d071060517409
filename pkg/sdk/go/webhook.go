package apipay

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// SignatureHeader is the header that signs a delivery.
	SignatureHeader = "ApiPay-Signature"
	// DefaultTolerance is how old, or how far ahead, a signature may be.
	DefaultTolerance = 300 * time.Second

	maxSignatureHeader = 4096
	maxTimestampDigits = 15
	maxEventBody       = 1 << 20 // an event has at most 256 KiB
)

// SignatureVerificationError says that a payload is not, or not recently, signed with any of the secrets. Answer 400 and
// do nothing else. Its text is fixed: it never carries what was received.
type SignatureVerificationError struct{ reason string }

func (e *SignatureVerificationError) Error() string {
	return "apipay: webhook signature: " + e.reason
}

// WebhookVerifier verifies deliveries.
type WebhookVerifier struct {
	// Secrets are the endpoint's secrets; during a rotation the new one and the old one. None may be empty.
	Secrets []Secret
	// Tolerance is used as it is: 0 allows the current second only.
	Tolerance time.Duration
	// Clock is time.Now if nil.
	Clock func() time.Time
}

// NewWebhookVerifier makes a verifier with the default tolerance.
func NewWebhookVerifier(secrets ...string) *WebhookVerifier {
	v := &WebhookVerifier{Tolerance: DefaultTolerance}
	for _, secret := range secrets {
		v.Secrets = append(v.Secrets, NewSecret(secret))
	}
	return v
}

// Verify checks that header, the value of ApiPay-Signature, signs payload: the body's bytes as they were received. Every
// refusal is a *SignatureVerificationError.
func (v *WebhookVerifier) Verify(payload []byte, header string) error {
	if len(v.Secrets) == 0 {
		return &SignatureVerificationError{"no secret is configured"}
	}
	for _, secret := range v.Secrets {
		// The HMAC under an empty key is anybody's.
		if secret.IsZero() {
			return &SignatureVerificationError{"a configured secret is empty"}
		}
	}
	timestamp, signatures, err := parseSignature(header)
	if err != nil {
		return err
	}
	digits := strings.TrimLeft(timestamp, "0")
	if len(digits) > maxTimestampDigits {
		return &SignatureVerificationError{"the timestamp is outside the tolerance"}
	}
	t, _ := strconv.ParseInt("0"+digits, 10, 64)
	now := time.Now
	if v.Clock != nil {
		now = v.Clock
	}
	age := now().Unix() - t
	if tolerance := int64(v.Tolerance / time.Second); age > tolerance || -age > tolerance {
		return &SignatureVerificationError{"the timestamp is outside the tolerance"}
	}
	matches := false
	for _, secret := range v.Secrets {
		mac := hmac.New(sha256.New, []byte(secret.Reveal()))
		mac.Write([]byte(timestamp + ".")) // the digits as they were received
		mac.Write(payload)
		want := mac.Sum(nil)
		for _, signature := range signatures {
			matches = hmac.Equal(want, signature) || matches
		}
	}
	if !matches {
		return &SignatureVerificationError{"no signature fits"}
	}
	return nil
}

// parseSignature reads "t=<digits>,v1=<hex>[,v1=<hex>]". Unknown elements are ignored, and so is a v1 that is no signature.
func parseSignature(header string) (timestamp string, signatures [][]byte, err error) {
	malformed := &SignatureVerificationError{"the header is malformed"}
	if len(header) > maxSignatureHeader {
		return "", nil, malformed
	}
	for _, element := range strings.Split(header, ",") {
		name, value, ok := strings.Cut(strings.Trim(element, " \t"), "=")
		if !ok {
			return "", nil, malformed
		}
		switch name {
		case "t":
			if timestamp != "" || value == "" || strings.Trim(value, "0123456789") != "" {
				return "", nil, malformed
			}
			timestamp = value
		case "v1":
			signature, err := hex.DecodeString(value)
			if err == nil && len(signature) == sha256.Size && value == strings.ToLower(value) {
				signatures = append(signatures, signature)
			}
		}
	}
	if timestamp == "" {
		return "", nil, malformed
	}
	return timestamp, signatures, nil
}

// ConstructEvent verifies, and then reads the event. A payload that is signed but is no event is an *Error with
// CodeInvalidResponse.
func (v *WebhookVerifier) ConstructEvent(payload []byte, header string) (*Event, error) {
	if err := v.Verify(payload, header); err != nil {
		return nil, err
	}
	text := bytes.TrimPrefix(payload, []byte("\xef\xbb\xbf"))
	// encoding/json would replace what is not UTF-8.
	var event Event
	if !utf8.Valid(text) || json.Unmarshal(text, &event) != nil {
		return nil, invalidEvent("the payload is not an event's JSON")
	}
	return &event, nil
}

// EventFromRequest reads a delivery's body and gives its event. Do not read the body before: the bytes are what is signed.
func (v *WebhookVerifier) EventFromRequest(r *http.Request) (*Event, error) {
	payload, err := io.ReadAll(io.LimitReader(r.Body, maxEventBody+1))
	if err != nil {
		return nil, &Error{Kind: KindConnection, Code: CodeConnectionError, Cause: err}
	}
	if len(payload) > maxEventBody {
		return nil, &SignatureVerificationError{"the payload is larger than any event"}
	}
	headers := r.Header.Values(SignatureHeader)
	if len(headers) != 1 {
		return nil, &SignatureVerificationError{"there must be one signature header"}
	}
	return v.ConstructEvent(payload, headers[0])
}

func invalidEvent(reason string) *Error {
	return &Error{Kind: KindDecode, Code: CodeInvalidResponse, Cause: errors.New(reason)}
}
