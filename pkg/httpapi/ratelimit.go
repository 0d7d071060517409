package httpapi

import (
	"container/list"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxBuckets bounds the limiter's memory, about 200 bytes each. Dropping the
// least recently used bucket gives its tenant a full one, which only matters
// with more active tenants than this on one replica.
const maxBuckets = 50_000

// RateLimiter is a token bucket per tenant and mode, in this replica's memory.
// The zero rate never limits. Its methods may be called concurrently.
type RateLimiter struct {
	// Clock is time.Now unless a test sets it before the first Take.
	Clock func() time.Time

	rps    rate.Limit
	burst  int
	policy string
	most   int

	mu      sync.Mutex
	buckets map[bucketKey]*list.Element
	recent  *list.List // of *bucket, most recently used first
}

type bucketKey struct {
	tenant   string
	livemode bool
}

type bucket struct {
	key     bucketKey
	limiter *rate.Limiter
}

// NewRateLimiter allows rps requests per second on average and burst at once;
// rps 0 switches it off. A burst below 1 becomes one second's worth.
func NewRateLimiter(rps float64, burst int) *RateLimiter {
	if burst < 1 {
		burst = max(1, int(math.Ceil(rps)))
	}
	l := &RateLimiter{
		Clock: time.Now, rps: rate.Limit(rps), burst: burst, most: maxBuckets,
		buckets: map[bucketKey]*list.Element{}, recent: list.New(),
	}
	if rps > 0 {
		// q tokens refill in w seconds.
		window := max(1, int(math.Ceil(float64(burst)/rps)))
		l.policy = fmt.Sprintf(`"default";q=%d;w=%d`, burst, window)
	}
	return l
}

// Take takes one token of the tenant and mode. It sets RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers) on h, and returns
// the rate_limited problem if there was no token: its Retry-After equals the
// header's t.
func (l *RateLimiter) Take(h http.Header, tenant string, livemode bool) error {
	if l == nil || l.rps <= 0 {
		return nil
	}
	now := l.Clock()
	lim := l.bucket(bucketKey{tenant, livemode})
	allowed := lim.AllowN(now, 1)
	tokens := lim.TokensAt(now)

	h.Set("RateLimit-Policy", l.policy)
	if allowed {
		h.Set("RateLimit", fmt.Sprintf(`"default";r=%d`, max(0, int(tokens))))
		return nil
	}
	missing := max(0, 1-tokens)
	wait := time.Duration(missing / float64(l.rps) * float64(time.Second))
	p := New(CodeRateLimited, "Too many requests; slow down.").WithRetryAfter(wait)
	h.Set("RateLimit", fmt.Sprintf(`"default";r=0;t=%d`, p.RetryAfter()))
	return p
}

func (l *RateLimiter) bucket(key bucketKey) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.buckets[key]; ok {
		l.recent.MoveToFront(el)
		return el.Value.(*bucket).limiter
	}
	if l.recent.Len() >= l.most {
		oldest := l.recent.Back()
		delete(l.buckets, l.recent.Remove(oldest).(*bucket).key)
	}
	b := &bucket{key: key, limiter: rate.NewLimiter(l.rps, l.burst)}
	l.buckets[key] = l.recent.PushFront(b)
	return b.limiter
}
