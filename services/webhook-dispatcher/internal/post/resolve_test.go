package post

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dnsBundle is a client whose resolver moods can be set, and a receiver called loop.test.
type dnsBundle struct {
	*Client
	server *dnsServer
	loop   string
}

func newDNSBundle(t *testing.T) *dnsBundle {
	t.Helper()
	server := newDNS(t)
	rx := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(rx.Close)
	u, err := url.Parse(rx.URL)
	require.NoError(t, err)
	server.set("loop.test.", "127.0.0.1")
	c := newClient(t, func(c *Config) { c.DNS, c.Timeout = server.addr, 2*time.Second })
	return &dnsBundle{Client: c, server: server, loop: "http://loop.test:" + u.Port()}
}

func (b *dnsBundle) moods(of func(name string) mood) { b.server.mood.Store(&of) }

func broken(name string) mood {
	switch {
	case strings.HasPrefix(name, "servfail"):
		return moodFails
	case strings.HasPrefix(name, "slow"):
		return moodSilent
	}
	return moodKnown
}

// requireOwn holds that each of several unrelated names that fail, all at once, is its endpoint's own failure.
func (b *dnsBundle) requireOwn(t *testing.T, label string) {
	t.Helper()
	results := make([]Result, 12)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = b.try(t, fmt.Sprintf("http://%s%d.dom%d.test/", label, i, i)) })
	}
	group.Wait()
	for _, result := range results {
		require.Equal(t, ClassDNS, result.Class)
		require.False(t, result.Ours, "counted")
		require.Less(t, result.Phases.Total, 2*time.Second)
	}
	require.Empty(t, b.Degraded())
}

// However many merchants' names fail, and however slowly, the others are sent to.
func TestResolver_BrokenNamesAreTheirOwn(t *testing.T) {
	t.Parallel()
	for _, label := range []string{"servfail", "slow"} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			t.Run("with nothing known but the root", func(t *testing.T) {
				t.Parallel()
				b := newDNSBundle(t)
				b.moods(broken)
				b.requireOwn(t, label)
				require.True(t, b.try(t, b.loop).Succeeded())
			})
			t.Run("with a root that is not answered", func(t *testing.T) {
				t.Parallel()
				b := newDNSBundle(t)
				b.moods(func(name string) mood {
					if name == "." {
						return moodFails
					}
					return broken(name)
				})
				require.True(t, b.try(t, b.loop).Succeeded())
				b.requireOwn(t, label)
				require.True(t, b.try(t, b.loop).Succeeded())
			})
		})
	}
}

// Where nothing shows yet that the resolver works, what waits for it shows it.
func TestResolver_WantedNamesEndThePause(t *testing.T) {
	t.Parallel()
	b := newDNSBundle(t)
	b.moods(func(name string) mood {
		if name == "." {
			return moodFails
		}
		return broken(name)
	})
	for i := range 4 {
		b.try(t, fmt.Sprintf("http://servfail%d.dom%d.test/", i, i))
	}
	require.NotEmpty(t, b.Degraded(), "nothing resolves")
	b.Probe(t.Context())
	require.NotEmpty(t, b.Degraded())
	require.True(t, b.try(t, b.loop).Ours, "given back")
	b.Probe(t.Context())
	require.Empty(t, b.Degraded())
	require.True(t, b.try(t, b.loop).Succeeded())
	b.requireOwn(t, "servfail")
}

// A resolver that is away costs nobody an attempt, and names are looked up again at the first proper answer.
func TestResolver_Away(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]mood{"silent": moodSilent, "failing": moodFails} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newDNSBundle(t)
			for i := range 3 {
				b.server.set(fmt.Sprintf("good.dom%d.test.", i), "127.0.0.1")
				b.try(t, fmt.Sprintf("http://good.dom%d.test:1/", i))
			}
			b.moods(func(string) mood { return all })
			first := b.try(t, b.loop)
			require.True(t, first.Ours, "the first one already")
			require.NotEmpty(t, b.Degraded())
			b.Probe(t.Context())
			require.NotEmpty(t, b.Degraded())
			require.True(t, b.try(t, b.loop).Ours)

			// No name is back, and what the root gets is that there is nothing.
			b.moods(func(name string) mood {
				if name == "." {
					return moodKnown
				}
				return all
			})
			b.Probe(t.Context())
			require.Empty(t, b.Degraded())
			b.moods(broken)
			// Not the name of before, which may share the answer to a question of before.
			b.server.set("back.test.", "127.0.0.1")
			require.True(t, b.try(t, strings.Replace(b.loop, "loop", "back", 1)).Succeeded())
			b.requireOwn(t, "servfail")
		})
	}
}

// A resolver that ends between a good answer and a failure is away all the same: an old answer proves nothing.
func TestResolver_AwayAtOnce(t *testing.T) {
	t.Parallel()
	b := newDNSBundle(t)
	require.True(t, b.try(t, b.loop).Succeeded())
	b.server.close()
	for range 3 {
		require.True(t, b.try(t, b.loop).Ours)
	}
	require.NotEmpty(t, b.Degraded())
}

func TestResolver_RemembersABoundedNumberOfNames(t *testing.T) {
	t.Parallel()
	r := newResolver("", time.Second)
	for i := range 100 {
		r.resolved(fmt.Sprintf("a.dom%d.test", i))
		r.resolved(fmt.Sprintf("b.dom%d.test", i))
	}
	require.Len(t, r.good, goodNames)
	require.Equal(t, "b.dom99.test", r.good[goodNames-1], "one of each domain")
	r.away = "away"
	for i := range 1000 {
		r.pausedFor(fmt.Sprintf("dom%d.test", i))
	}
	require.Len(t, r.wanted, wantedNames)
}
