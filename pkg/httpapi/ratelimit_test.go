package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRateLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := NewRateLimiter(0.5, 3)
	l.Clock = func() time.Time { return now }
	h := http.Header{}
	for left := 2; left >= 0; left-- {
		require.NoError(t, l.Take(h, "a", false))
		require.Equal(t, fmt.Sprintf(`"default";r=%d`, left), h.Get("RateLimit"))
		require.Equal(t, `"default";q=3;w=6`, h.Get("RateLimit-Policy"))
	}
	err := l.Take(h, "a", false)
	p, ok := errors.AsType[*Problem](err)
	require.True(t, ok)
	require.Equal(t, CodeRateLimited, p.Code)
	require.True(t, p.Retryable)
	require.Equal(t, "2", p.Header.Get("Retry-After"))
	require.Equal(t, `"default";r=0;t=2`, h.Get("RateLimit"))

	require.NoError(t, l.Take(h, "a", true), "the other mode has its own bucket")
	require.NoError(t, l.Take(h, "b", false), "the other tenant has its own bucket")

	now = now.Add(1500 * time.Millisecond)
	err = l.Take(h, "a", false)
	p, ok = errors.AsType[*Problem](err)
	require.True(t, ok)
	require.Equal(t, 1, p.RetryAfter(), "half a second is rounded up")

	now = now.Add(500 * time.Millisecond)
	require.NoError(t, l.Take(h, "a", false), "after Retry-After there is a token: refused tries cost nothing")
	require.Error(t, l.Take(h, "a", false))
}

func TestRateLimiter_Off(t *testing.T) {
	t.Parallel()
	for _, l := range []*RateLimiter{nil, NewRateLimiter(0, 0), NewRateLimiter(0, 5)} {
		h := http.Header{}
		for range 100 {
			require.NoError(t, l.Take(h, "a", false))
		}
		require.Empty(t, h)
	}
}

func TestRateLimiter_BoundedMemory(t *testing.T) {
	t.Parallel()
	l := NewRateLimiter(0.001, 1)
	l.most = 10
	require.NoError(t, l.Take(http.Header{}, "kept", true))
	for i := range 1000 {
		_ = l.Take(http.Header{}, fmt.Sprint(i), true)
		require.Error(t, l.Take(http.Header{}, "kept", true), "a bucket in use is not dropped")
	}
	require.Len(t, l.buckets, 10)
	require.Equal(t, 10, l.recent.Len())
}

func TestRateLimiter_Concurrent(t *testing.T) {
	t.Parallel()
	l := NewRateLimiter(0.001, 50)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if l.Take(http.Header{}, "a", false) == nil {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, allowed.Load())
}
