// Package retry holds the two calculations of the retry policy: how long to wait, and what Retry-After says.
package retry

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	base     = 500 * time.Millisecond
	ceiling  = 8 * time.Second
	ceilingN = 4 // base << ceilingN is the ceiling
	// MaxWait is the longest wait that a server's Retry-After can ask for.
	MaxWait = 60 * time.Second
)

// Backoff is the wait before retry n+1, n from 0: full jitter, random times the smaller of 500 ms * 2^n and 8 s. random is
// in [0,1).
func Backoff(n int, random float64) time.Duration {
	limit := ceiling
	if n < ceilingN {
		limit = base << max(n, 0) // beyond ceilingN the shift would overflow
	}
	if !(random >= 0) { // NaN too
		return 0
	}
	return time.Duration(math.Min(random, 1) * float64(limit))
}

// Random is the source of jitter unless a client is given another. It is seeded by the system and safe for concurrent use.
func Random() float64 { return rand.Float64() } //nolint:gosec // waits are no secrets

// imfFixdate is the only date form that counts; http.TimeFormat prints it, but time.Parse reads more than it prints.
const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"

// After reads a Retry-After header: how many whole seconds from now it asks for, rounded up and never negative. Only digits
// and IMF-fixdate count; ok is false for anything else, and for a header that is there more than once.
func After(values []string, now time.Time) (seconds int64, ok bool) {
	if len(values) != 1 {
		return 0, false
	}
	text := strings.Trim(values[0], " \t")
	if digits := strings.Trim(text, "0123456789"); digits == "" && text != "" {
		return parseDigits(text), true
	}
	date, err := time.Parse(imfFixdate, text)
	if err != nil || date.Format(imfFixdate) != text {
		return 0, false
	}
	wait := date.Sub(now) // saturates
	if wait <= 0 {
		return 0, true
	}
	return min(int64((wait-1)/time.Second)+1, math.MaxInt32), true
}

// parseDigits saturates: RFC 9111 asks for the greatest number one can represent.
func parseDigits(text string) int64 {
	var n int64
	for _, digit := range []byte(text) {
		if n = n*10 + int64(digit-'0'); n > math.MaxInt32 {
			return math.MaxInt32
		}
	}
	return n
}
