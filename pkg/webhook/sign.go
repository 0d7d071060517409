package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// The names of the headers that a signed delivery carries.
const (
	HeaderSignature         = "ApiPay-Signature"
	HeaderStandardID        = "webhook-id"
	HeaderStandardTimestamp = "webhook-timestamp"
	HeaderStandardSignature = "webhook-signature"
)

// Headers are the values that sign one attempt.
type Headers struct {
	Signature         string // ApiPay-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>]
	StandardID        string // webhook-id: the event's evt_ id
	StandardTimestamp string // webhook-timestamp: the same t
	StandardSignature string // webhook-signature: v1,<base64>[ v1,<base64>]
}

// Set puts the four headers into h, replacing what is there.
func (s Headers) Set(h http.Header) {
	h.Set(HeaderSignature, s.Signature)
	h.Set(HeaderStandardID, s.StandardID)
	h.Set(HeaderStandardTimestamp, s.StandardTimestamp)
	h.Set(HeaderStandardSignature, s.StandardSignature)
}

// Sign signs the bytes that are sent as body, at t, with each secret: the active one first, then the one that a rotation
// still honors. ApiPay-Signature is the HMAC-SHA256 of "t.body" under all ASCII bytes of the secret's text; the other
// three are Standard Webhooks (https://www.standardwebhooks.com), the HMAC-SHA256 of "id.t.body" under the 32 bytes that
// the text encodes. A zero Secret signs nothing, since its empty key would be everybody's; with no other secret the
// result carries no v1 and no receiver accepts it, so callers make sure that there is one.
func Sign(eventID string, t time.Time, body []byte, secrets ...Secret) Headers {
	stamp := strconv.FormatInt(t.Unix(), 10)
	own := make([]byte, 0, len("t=")+len(stamp)+len(secrets)*(len(",v1=")+2*sha256.Size))
	own = append(append(own, "t="...), stamp...)
	standard := make([]byte, 0, len(secrets)*(len(" v1,")+base64.StdEncoding.EncodedLen(sha256.Size)))

	ownPrefix := []byte(stamp + ".")
	standardPrefix := []byte(eventID + "." + stamp + ".")
	var sum [sha256.Size]byte
	for _, secret := range secrets {
		if secret.IsZero() {
			continue
		}
		keys := *secret.m
		own = append(own, ",v1="...)
		own = hex.AppendEncode(own, authenticate(sum[:0], keys.ascii, ownPrefix, body))
		if len(standard) > 0 {
			standard = append(standard, ' ')
		}
		standard = append(standard, "v1,"...)
		standard = base64.StdEncoding.AppendEncode(standard, authenticate(sum[:0], keys.decoded, standardPrefix, body))
	}
	return Headers{
		Signature:         string(own),
		StandardID:        eventID,
		StandardTimestamp: stamp,
		StandardSignature: string(standard),
	}
}

// authenticate is HMAC-SHA256; it hashes prefix and body one after the other, so that the body is never copied.
func authenticate(dst, key, prefix, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(prefix)
	h.Write(body)
	return h.Sum(dst)
}
