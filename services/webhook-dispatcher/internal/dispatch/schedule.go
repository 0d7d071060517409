package dispatch

import (
	"math/rand/v2"
	"time"

	"apipay.io/hub/pkg/webhook"
)

// Why a delivery is FAILED.
const (
	failedExhausted = webhook.FailedExhausted
	failedDisabled  = webhook.FailedDisabled
	failedDeleted   = webhook.FailedDeleted
	failedExpired   = webhook.FailedExpired
)

// maxRetryAfter caps what a receiver may ask for.
const maxRetryAfter = 12 * time.Hour

// next is a delivery's state after a counted attempt.
type next struct {
	status string
	wait   *time.Duration
	reason *string
}

// afterFailure is what follows attempt number n, by the schedule. wasReceived marks a forced resend of a delivery that
// had succeeded: it falls back to that.
func afterFailure(schedule []time.Duration, number int, retryAfter time.Duration, wasReceived bool) next {
	switch {
	case wasReceived:
		return next{status: "DELIVERED"}
	case number > len(schedule):
		reason := failedExhausted
		return next{status: "FAILED", reason: &reason}
	}
	wait := jittered(schedule[number-1])
	if asked := min(retryAfter, maxRetryAfter); asked > wait {
		wait = asked
	}
	return next{status: "RETRYING", wait: &wait}
}

// jittered adds up to a tenth, so that what failed together does not come back together; never less than asked.
func jittered(wait time.Duration) time.Duration {
	return wait + time.Duration(rand.Float64()*float64(wait)/10) //nolint:gosec // not a secret
}
