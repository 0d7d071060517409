// Package apipaytest helps to test receivers of ApiPay's webhooks.
package apipaytest

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
)

// Sign makes the value of ApiPay-Signature for payload, signed at t with each secret, as webhook-dispatcher does: during a
// rotation with the active secret first.
func Sign(payload []byte, t time.Time, secrets ...string) string {
	var header strings.Builder
	fmt.Fprintf(&header, "t=%d", t.Unix())
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.", t.Unix())
		mac.Write(payload)
		fmt.Fprintf(&header, ",v1=%x", mac.Sum(nil))
	}
	return header.String()
}
