package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrBlocked is returned for a destination that webhooks may not reach. What wraps it names no resolved address, so it
// may be shown to the merchant.
var ErrBlocked = errors.New("blocked by policy")

// Policy says which addresses webhooks may reach: public ones, and those of an allow list. The zero Policy has no allow
// list. It is safe for concurrent use.
type Policy struct {
	allow []netip.Prefix
}

// publicOnly knows the special-purpose registries of IANA. Azure serves metadata and more at one address that no registry
// has: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
var publicOnly = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork(),
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

// ParsePolicy reads APIPAY_WEBHOOK_ALLOW_CIDRS: prefixes separated by commas, or nothing. A prefix with bits set behind
// its length is refused, since 10.1.2.3/8 leaves open whether one address or sixteen million were meant.
func ParsePolicy(cidrs string) (Policy, error) {
	var allow []netip.Prefix
	if strings.TrimSpace(cidrs) == "" {
		return Policy{}, nil
	}
	for _, text := range strings.Split(cidrs, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return Policy{}, fmt.Errorf("%q is not a CIDR prefix", text)
		}
		allow = append(allow, prefix)
	}
	return NewPolicy(allow...)
}

// NewPolicy allows the prefixes besides public addresses.
func NewPolicy(allow ...netip.Prefix) (Policy, error) {
	for _, prefix := range allow {
		if !prefix.IsValid() || prefix != prefix.Masked() {
			return Policy{}, fmt.Errorf("%q is not a CIDR prefix: bits are set behind its length", prefix)
		}
	}
	return Policy{allow: append([]netip.Prefix(nil), allow...)}, nil
}

// HasAllowList says that an allow list is set, and with it http:// URLs.
func (p Policy) HasAllowList() bool { return len(p.allow) > 0 }

// CheckIP judges an address that is about to be dialed. An IPv6 address that carries an IPv4 address is refused unless
// the allow list has it, and what it carries must be reachable as well. This holds for ::ffff:a.b.c.d too:
// net.Resolver.LookupNetIP answers IPv4 addresses in that form, so Unmap its answers first.
func (p Policy) CheckIP(addr netip.Addr) error {
	if !addr.IsValid() {
		return fmt.Errorf("%w: not an address", ErrBlocked)
	}
	if addr.Zone() != "" {
		return fmt.Errorf("%w: an address with a zone", ErrBlocked)
	}
	if carried := carriedIPv4(addr); carried != nil {
		if !p.isListed(addr) {
			return fmt.Errorf("%w: an IPv6 address that carries an IPv4 address", ErrBlocked)
		}
		for _, inner := range carried {
			if err := p.CheckIP(inner); err != nil {
				return err
			}
		}
		return nil
	}
	if p.isListed(addr) || publicOnly.SafeAddr(addr) == nil {
		return nil
	}
	return fmt.Errorf("%w: not a public address", ErrBlocked)
}

// Control is for net.Dialer.Control: it judges the address that the name was resolved to, each time one is dialed.
func (p Policy) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: not a TCP connection", ErrBlocked)
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil || target.Port() == 0 {
		return fmt.Errorf("%w: not an address and a port", ErrBlocked)
	}
	return p.CheckIP(target.Addr())
}

// ControlContext is Control for net.Dialer.ControlContext.
func (p Policy) ControlContext(_ context.Context, network, address string, c syscall.RawConn) error {
	return p.Control(network, address, c)
}

func (p Policy) isListed(addr netip.Addr) bool {
	for _, prefix := range p.allow {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// The prefixes whose last 32 bits are an IPv4 address.
var carryAtEnd = []netip.Prefix{
	netip.MustParsePrefix("::/96"),           // IPv4-compatible (RFC 4291)
	netip.MustParsePrefix("::ffff:0:0/96"),   // IPv4-mapped (RFC 4291)
	netip.MustParsePrefix("::ffff:0:0:0/96"), // IPv4-translated (RFC 2765)
	netip.MustParsePrefix("64:ff9b::/96"),    // NAT64 (RFC 6052)
	netip.MustParsePrefix("64:ff9b:1::/48"),  // local NAT64 (RFC 8215), whose networks are /96 as a rule
}

var (
	sixToFour = netip.MustParsePrefix("2002::/16") // RFC 3056
	teredo    = netip.MustParsePrefix("2001::/32") // RFC 4380
)

// carriedIPv4 lists the IPv4 addresses that a tunnel or translator would find in addr.
func carriedIPv4(addr netip.Addr) []netip.Addr {
	if !addr.Is6() || addr.IsUnspecified() || addr == netip.IPv6Loopback() {
		return nil
	}
	b := addr.As16()
	end := netip.AddrFrom4([4]byte(b[12:16]))
	for _, prefix := range carryAtEnd {
		if prefix.Contains(addr) {
			return []netip.Addr{end}
		}
	}
	switch {
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(addr):
		// The server's address, and the client's with every bit turned.
		client := ^binary.BigEndian.Uint32(b[12:16])
		return []netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, client)))}
	case binary.BigEndian.Uint32(b[8:12])&^0x03000000 == 0x00005efe:
		// ISATAP (RFC 5214), with the universal and group bits in any state.
		return []netip.Addr{end}
	}
	return nil
}
