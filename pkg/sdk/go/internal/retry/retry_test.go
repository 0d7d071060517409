package retry

import (
	"math"
	"testing"
	"time"
)

var now = time.Date(2023, time.November, 14, 22, 13, 20, 0, time.UTC)

func TestBackoff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{0, 0.5, 250 * time.Millisecond}, {3, 0.5, 2 * time.Second}, {4, 0.5, 4 * time.Second}, {1000, 0.5, 4 * time.Second},
		{math.MaxInt, 1, 8 * time.Second}, {0, 0, 0}, {-1, 0.5, 250 * time.Millisecond}, {0, math.NaN(), 0}, {0, -1, 0}, {9, 5, 8 * time.Second},
	} {
		if got := Backoff(c.n, c.random); got != c.want {
			t.Errorf("Backoff(%d, %v) = %s, want %s", c.n, c.random, got, c.want)
		}
	}
}

func TestAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "007": 7, " 7\t": 7, "99999999999999999999": math.MaxInt32, "2147483647": math.MaxInt32,
		"Tue, 14 Nov 2023 22:13:21 GMT": 1, "Tue, 14 Nov 2023 22:13:20 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": math.MaxInt32,
	} {
		if got, ok := After([]string{text}, now); !ok || got != want {
			t.Errorf("After(%q) = %d, %t, want %d", text, got, ok, want)
		}
	}
	if _, ok := After([]string{"7", "7"}, now); ok {
		t.Error("two headers were taken")
	}
}

func FuzzAfter(f *testing.F) {
	for _, seed := range []string{"7", "-1", "1.5", "", "Tue, 14 Nov 2023 22:13:30 GMT", "Tue, 14-Nov-23 22:13:30 GMT", "\x00"} {
		f.Add(seed, int64(0))
	}
	f.Fuzz(func(t *testing.T, text string, shift int64) {
		seconds, ok := After([]string{text}, now.Add(time.Duration(shift)))
		if seconds < 0 || seconds > math.MaxInt32 || (!ok && seconds != 0) {
			t.Fatalf("After(%q) = %d, %t", text, seconds, ok)
		}
	})
}
