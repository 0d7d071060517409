package post

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookupTimeout = 4 * time.Second
	probeTimeout  = time.Second
	// unrelatedHosts that cannot be resolved for now are too many to be the receivers' fault.
	unrelatedHosts = 3
	troubleWindow  = time.Minute
)

// resolver looks names up and tells a name that cannot be resolved from a resolver that does not work.
type resolver struct {
	net *net.Resolver
	// answered counts answers of any kind: what a dead resolver never gives.
	answered atomic.Int64

	mu sync.Mutex
	// trouble holds, per domain, the last lookup that failed for now, since the last one that succeeded.
	trouble map[string]trouble
	// away says why names are not looked up for now, "" if they are; silent, that the resolver gave no answer at all.
	away   string
	silent bool
}

type trouble struct {
	host string
	at   time.Time
}

func newResolver(server string) *resolver {
	r := &resolver{trouble: map[string]trouble{}}
	r.net = &net.Resolver{
		// The C library's resolver cannot be canceled, and reads more spellings of an address than we want to know.
		PreferGo: true,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if server != "" {
				address = server
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if packet, ok := conn.(*net.UDPConn); ok {
				// Kept a packet connection: the library frames messages by this.
				return &countedPacketConn{UDPConn: packet, answered: &r.answered}, nil
			}
			return &countedConn{Conn: conn, answered: &r.answered}, nil
		},
	}
	return r
}

type countedConn struct {
	net.Conn
	answered *atomic.Int64
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.answered.Add(1)
	}
	return n, err
}

type countedPacketConn struct {
	*net.UDPConn
	answered *atomic.Int64
}

func (c *countedPacketConn) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if n > 0 {
		c.answered.Add(1)
	}
	return n, err
}

// lookup answers the addresses of a host, IPv4 ones in their plain form. It fails with *net.DNSError where the host is at
// fault and with an oursError where the resolver is.
func (r *resolver) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	if reason := r.pausedFor(); reason != "" {
		return nil, &oursError{errors.New(reason)}
	}
	before := r.answered.Load()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	// The dot keeps the machine's search list out of it.
	addrs, err := r.net.LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
	if err == nil {
		r.succeeded()
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		return addrs, nil
	}
	var dnsErr *net.DNSError
	if errors.As(err, &dnsErr) && dnsErr.IsNotFound {
		return nil, fmt.Errorf("resolving: %w", err)
	}
	if r.isOurs(host, before) {
		return nil, &oursError{fmt.Errorf("resolving: %w", err)}
	}
	return nil, fmt.Errorf("resolving: %w", &net.DNSError{Err: "temporary failure", Name: host, IsTemporary: true})
}

// isOurs judges a lookup that failed for now, and begins the pause if the fault is the resolver's.
func (r *resolver) isOurs(host string, before int64) bool {
	silent := r.answered.Load() == before && !r.answersNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.trouble[domainOf(host)] = trouble{host, now}
	for domain, t := range r.trouble {
		if now.Sub(t.at) > troubleWindow {
			delete(r.trouble, domain)
		}
	}
	if silent || len(r.trouble) >= unrelatedHosts {
		r.away, r.silent = "the resolver is away", silent
		return true
	}
	return false
}

// answersNow asks for the root, which any resolver says something about.
func (r *resolver) answersNow() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	before := r.answered.Load()
	_, err := r.net.LookupNS(ctx, ".")
	return err == nil || r.answered.Load() > before
}

func (r *resolver) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.trouble)
}

func (r *resolver) pausedFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// probe ends the pause when the resolver works: after silence any answer will do, else one of the names that were in
// trouble must be known or unknown for sure.
func (r *resolver) probe(ctx context.Context) {
	r.mu.Lock()
	silent := r.silent
	hosts := make([]string, 0, len(r.trouble))
	for _, t := range r.trouble {
		hosts = append(hosts, t.host)
	}
	r.mu.Unlock()
	if silent && !r.answersNow() || !silent && !r.resolvesOne(ctx, hosts) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = ""
	clear(r.trouble)
}

func (r *resolver) resolvesOne(ctx context.Context, hosts []string) bool {
	for _, host := range hosts {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err := r.net.LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
		cancel()
		var dnsErr *net.DNSError
		if err == nil || errors.As(err, &dnsErr) && dnsErr.IsNotFound {
			return true
		}
	}
	return false
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
	return c.resolver.pausedFor()
}

// Probe looks whether what was away works again.
func (c *Client) Probe(ctx context.Context) {
	if c.proxyIsAway.Load() {
		probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if c.probeProxy(probeCtx) == nil {
			c.proxyIsAway.Store(false)
		}
	}
	if c.resolver.pausedFor() != "" {
		c.resolver.probe(ctx)
	}
}
