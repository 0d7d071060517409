package post

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxLookupTimeout = 4 * time.Second
	maxProbeTimeout  = time.Second
	// unrelatedHosts that fail while nothing resolves are too many to be the receivers' fault.
	unrelatedHosts = 3
	troubleWindow  = time.Minute
	// goodNames and wantedNames bound what is remembered, askedNames what one cross-check asks.
	goodNames   = 16
	wantedNames = 64
	askedNames  = 3
	askedWanted = 8
)

// resolver looks names up and tells a name that cannot be resolved from a resolver that does not work. A name is somebody's
// own: however many of them fail, and however slowly, they say nothing about the resolver as long as it answers anything
// else properly. So a failed lookup is held against other names, and the root, before it counts as ours.
type resolver struct {
	// server is its host:port, empty for the system's.
	server string
	// With both cross-checks that a failure may wait for, a lookup ends before its attempt does: else the attempt's limit
	// would end it without a judgment, at the receiver's cost.
	lookupTimeout, probeTimeout time.Duration
	// answered counts answers of any kind: what a dead resolver never gives. proper counts those that say what there is, or
	// that there is nothing.
	answered, proper atomic.Int64

	mu sync.Mutex
	// good are names that resolved, one per domain, the latest last.
	good []string
	// trouble holds, per domain, when a lookup failed for now while nothing was known to resolve.
	trouble map[string]time.Time
	// wanted are names that were asked for during the pause: each may be the one that resolves.
	wanted map[string]struct{}
	// away says why names are not looked up for now, "" if they are.
	away string
	// latest is the last cross-check that was asked for, next the one that has not begun.
	latest, next *check
}

// check is one cross-check, shared by all whose lookup failed before it began.
type check struct {
	done     chan struct{}
	names    []string
	resolves bool
}

func newResolver(server string, timeout time.Duration) *resolver {
	return &resolver{
		server:        server,
		lookupTimeout: min(maxLookupTimeout, timeout/2),
		probeTimeout:  min(maxProbeTimeout, timeout/8),
		trouble:       map[string]time.Time{},
		wanted:        map[string]struct{}{},
	}
}

// net is a new one for each question: the library lets lookups of one name share an answer, and so those after an outage
// would wait for a question that got lost in it.
func (r *resolver) net() *net.Resolver {
	return &net.Resolver{
		// The C library's resolver cannot be canceled, and reads more spellings of an address than we want to know.
		PreferGo: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if r.server != "" {
				address = r.server
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return r.observe(ctx, conn), nil
		},
	}
}

// lookup answers the addresses of a host, IPv4 ones in their plain form. It fails with *net.DNSError where the host is at
// fault and with an oursError where the resolver is.
func (r *resolver) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	if reason := r.pausedFor(host); reason != "" {
		return nil, &oursError{errors.New(reason)}
	}
	answered, proper := r.answered.Load(), r.proper.Load()
	addrs, err := r.askTwice(ctx, host)
	if err == nil {
		if r.proper.Load() > proper { // else it is of the machine's hosts file
			r.resolved(host)
		}
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		return addrs, nil
	}
	var dnsErr *net.DNSError
	if errors.As(err, &dnsErr) && dnsErr.IsNotFound {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	if ctx.Err() != nil {
		// Nobody waits for it anymore: neither a fault nor a proof of one.
		return nil, fmt.Errorf("resolving: %w", ctx.Err())
	}
	if r.isOurs(host, answered) {
		return nil, &oursError{fmt.Errorf("resolving: %w", err)}
	}
	return nil, fmt.Errorf("resolving: %w", &net.DNSError{Err: "temporary failure", Name: host, IsTemporary: true})
}

// askTwice asks again for what may have got lost on the way; the library would so after five seconds.
func (r *resolver) askTwice(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, r.lookupTimeout)
	defer cancel()
	first, cancelFirst := context.WithTimeout(ctx, r.lookupTimeout/3)
	defer cancelFirst()
	addrs, err := r.ask(first, host)
	if err == nil || first.Err() == nil {
		return addrs, err
	}
	return r.ask(ctx, host)
}

// ask looks a name up. The dot keeps the machine's search list out of it.
func (r *resolver) ask(ctx context.Context, host string) ([]netip.Addr, error) {
	return r.net().LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
}

// isOurs judges a lookup that failed for now, and begins the pause if the fault is the resolver's: it is silent, or it
// answers and has nothing proper to say about anything.
func (r *resolver) isOurs(host string, answered int64) bool {
	c := r.crossCheck()
	<-c.done
	silent := r.answered.Load() == answered
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.resolves {
		clear(r.trouble)
		return false
	}
	now := time.Now()
	r.trouble[domainOf(host)] = now
	for _, name := range c.names {
		// These failed too, just now.
		r.trouble[domainOf(name)] = now
	}
	for domain, at := range r.trouble {
		if now.Sub(at) > troubleWindow {
			delete(r.trouble, domain)
		}
	}
	if silent || len(r.trouble) >= unrelatedHosts {
		r.away = "the resolver is away"
		return true
	}
	return false
}

// crossCheck is one that begins after the call, so that an answer from before the failure proves nothing.
func (r *resolver) crossCheck() *check {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		return r.next
	}
	before, c := r.latest, &check{done: make(chan struct{})}
	r.latest, r.next = c, c
	go func() {
		defer close(c.done)
		if before != nil {
			<-before.done
		}
		r.mu.Lock()
		r.next = nil
		c.names = r.sample(askedNames)
		r.mu.Unlock()
		c.resolves = r.resolvesAny(context.Background(), c.names)
	}()
	return c
}

// sample is some of the good names, at random: the latest could all be one merchant's. The caller has the lock.
func (r *resolver) sample(n int) []string {
	names := make([]string, 0, n)
	for _, i := range rand.Perm(len(r.good))[:min(n, len(r.good))] { //nolint:gosec // no secret
		names = append(names, r.good[i])
	}
	return names
}

// resolvesAny asks the names and the root at once, and reports whether there was a proper answer to anything, to a lookup
// of somebody else's too.
func (r *resolver) resolvesAny(ctx context.Context, names []string) bool {
	ctx, cancel := context.WithTimeout(ctx, r.probeTimeout)
	defer cancel()
	before := r.proper.Load()
	ended := make(chan struct{}, len(names)+1)
	go func() {
		_, _ = r.net().LookupNS(ctx, ".") // what was answered is seen on the wire
		ended <- struct{}{}
	}()
	for _, name := range names {
		go func() {
			_, _ = r.ask(ctx, name) // as above
			ended <- struct{}{}
		}()
	}
	for range cap(ended) {
		<-ended
		if r.proper.Load() > before {
			return true
		}
	}
	return false
}

// resolved notes a name that can be asked when others fail.
func (r *resolver) resolved(host string) {
	domain := domainOf(host)
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.trouble)
	kept := r.good[:0]
	for _, name := range r.good {
		if domainOf(name) != domain {
			kept = append(kept, name)
		}
	}
	if len(kept) == goodNames {
		kept = append(kept[:0], kept[1:]...)
	}
	r.good = append(kept, host)
}

// pausedFor says why a name is not looked up for now, "" if it is.
func (r *resolver) pausedFor(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away == "" {
		return ""
	}
	if len(r.wanted) >= wantedNames {
		for name := range r.wanted {
			delete(r.wanted, name)
			break
		}
	}
	r.wanted[host] = struct{}{}
	return r.away
}

func (r *resolver) paused() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// probe ends the pause when the resolver has a proper answer to anything: names that resolved before, the root, or some of
// the names that wait.
func (r *resolver) probe(ctx context.Context) {
	r.mu.Lock()
	names := r.sample(goodNames)
	for name := range r.wanted {
		if len(names) >= goodNames+askedWanted {
			break
		}
		names = append(names, name)
	}
	r.mu.Unlock()
	if !r.resolvesAny(ctx, names) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = ""
	clear(r.trouble)
	clear(r.wanted)
}

// domainOf is the last two labels: hosts below the same are related enough to fail together.
func domainOf(host string) string {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(host), "."), ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}

// Paused says why no request is sent for a fault of ours, "" if they are. While only the resolver is away, receivers whose
// URLs need none are reached all the same, and this answers "".
func (c *Client) Paused() string {
	if c.proxyIsAway.Load() {
		return "the proxy is away"
	}
	return ""
}

// Degraded says what of ours is away, "" if nothing is.
func (c *Client) Degraded() string {
	if reason := c.Paused(); reason != "" {
		return reason
	}
	return c.resolver.paused()
}

// Probe looks whether what was away works again, and whether the proxy still does.
func (c *Client) Probe(ctx context.Context) {
	if c.config.Proxy != nil {
		c.probeProxy(ctx)
	}
	if c.resolver.paused() != "" {
		c.resolver.probe(ctx)
	}
}
