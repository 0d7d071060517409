package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPost sends any body and key to a money route: whatever they are, the answer is no 5xx, and what is accepted is
// an event that keeps the contract.
func FuzzPost(f *testing.F) {
	for _, body := range []string{
		`{"amount":1000,"currency":"EUR"}`, `{"amount":1e3}`, `{"amount":-0,"currency":"\ud83d"}`, ``, `{}`, `[`, `{"a":{"a":[]}}`,
		`{"amount":99999999999999999999,"currency":"eur","metadata":{"a":"\u0001\u2028😀"},"description":"\u0000"}`,
		`{"amount":1,"currency":"JPY","payment_method":"pm_card_visa","confirm":true,"merchant_reference":"x"}`,
	} {
		f.Add(uint8(0), "k", body)
		f.Add(uint8(1), `"k"`, body)
	}
	f.Add(uint8(2), "\x7f", `{}`)
	f.Add(uint8(3), strings.Repeat("k", 300), `{"amount":1,"reason":"x"}`)
	b := newBundle(f)
	pi := b.me().created("pm_card_visa")
	f.Fuzz(func(t *testing.T, route uint8, key, body string) {
		path := []string{intents, confirmPath(pi), cancelPath(pi), refundPath(pi)}[route%4]
		a, err := b.me().key(key).do(t.Context(), http.MethodPost, path, []byte(body))
		if err != nil {
			// net/http refuses to send some keys. Everything else is an answer that did not come.
			require.ErrorContains(t, err, "invalid header field value")
			return
		}
		// pm_gateway_unavailable is the one input whose right answer is 503.
		if !strings.Contains(body, "pm_gateway_unavailable") {
			require.Less(t, a.status, 500, a.raw)
		}
		if a.status < 300 {
			require.NotContains(t, a.raw, `\u0000`)
		}
	})
}
