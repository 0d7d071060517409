package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ErrURLInvalid is returned for a URL that cannot be an endpoint's. What wraps it never quotes the URL, which may hold
// credentials.
var ErrURLInvalid = errors.New("not a webhook URL")

const maxURLBytes = 2048

// CheckURL judges the URL of an endpoint when it is created or changed: its form, and its host as far as that is an
// address or a name with a fixed meaning. It resolves nothing; what a name leads to is judged by Control at each dial.
func (p Policy) CheckURL(raw string) error {
	if raw == "" || len(raw) > maxURLBytes {
		return invalidURL("must be 1 to 2048 bytes long")
	}
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, isUnprintable) {
		return invalidURL("must not contain spaces or control characters")
	}
	if strings.Contains(raw, "#") {
		return invalidURL("must not have a fragment")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return invalidURL("must be an absolute https:// URL")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !p.HasAllowList()) {
		return invalidURL("must start with https://")
	}
	if u.User != nil {
		return invalidURL("must not carry a user name or password")
	}
	if u.Opaque != "" || u.Hostname() == "" {
		return invalidURL("must have a host")
	}
	if err := checkPort(u); err != nil {
		return err
	}
	return p.checkHost(u)
}

func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}

func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return invalidURL("must have a port behind the colon")
		}
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return invalidURL("must have a port from 1 to 65535")
	}
	return nil
}

// checkHost accepts an address in its one canonical spelling only: a resolver, a proxy and this code must not be able to
// read the same text in different ways.
func (p Policy) checkHost(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	if strings.HasPrefix(u.Host, "[") {
		addr, err := netip.ParseAddr(host)
		if err != nil || !addr.Is6() {
			return blockedHost("not an IPv6 address in the brackets")
		}
		return p.checkLiteral(host, addr)
	}
	if strings.Contains(host, ":") || strings.Contains(host, "%") {
		return blockedHost("an IPv6 address without brackets")
	}
	// What the HTTP client does before it resolves: full-width digits and dots become plain ones here.
	name := host
	if !isASCII(host) {
		var err error
		if name, err = idna.Lookup.ToASCII(host); err != nil {
			return invalidURL("must have a valid host name")
		}
	}
	name = strings.TrimSuffix(name, ".")
	if number := strings.TrimRight(name, "."); endsInNumber(number) {
		addr, ok := parseIPv4(number)
		if !ok {
			return blockedHost("a number that is no address")
		}
		return p.checkLiteral(host, addr)
	}
	if !isDomainName(name) {
		return invalidURL("must have a valid host name")
	}
	return p.checkName(host, name)
}

func (p Policy) checkLiteral(spelled string, addr netip.Addr) error {
	if err := p.CheckIP(addr); err != nil {
		return fmt.Errorf("the host is %w", err)
	}
	if spelled != addr.String() {
		return blockedHost("an address that is not in its canonical spelling")
	}
	return nil
}

// Names that never leave the machine or its cloud, whatever a resolver says about them.
var (
	loopbackNames = []string{"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
	metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "metadata.azure.internal",
		"metadata.azure.com", "metadata.tencentyun.com", "instance-data", "instance-data.ec2.internal"}
)

func (p Policy) checkName(spelled, name string) error {
	for _, known := range metadataNames {
		if isOrUnder(name, known) {
			return blockedHost("a metadata service")
		}
	}
	for _, known := range loopbackNames {
		if !isOrUnder(name, known) {
			continue
		}
		listed := p.isListed(netip.AddrFrom4([4]byte{127, 0, 0, 1})) || p.isListed(netip.IPv6Loopback())
		if !listed || spelled != name {
			return blockedHost("the machine itself")
		}
	}
	return nil
}

func isOrUnder(name, parent string) bool {
	return name == parent || strings.HasSuffix(name, "."+parent)
}

// endsInNumber is the rule by which browsers and resolvers take a host for an IPv4 address: its last label is a number.
// No top-level domain is one. (https://url.spec.whatwg.org/#ends-in-a-number-checker)
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" {
		return false
	}
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// parseIPv4 reads what inet_aton reads: one to four parts, each decimal, octal (0...) or hexadecimal (0x...), the last one
// filling the bytes that are left.
func parseIPv4(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		n, ok := parsePart(part)
		width := 8
		if i == len(parts)-1 {
			width = 8 * (5 - len(parts))
		}
		if !ok || n>>width != 0 {
			return netip.Addr{}, false
		}
		value = value<<width | n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

func parsePart(part string) (uint64, bool) {
	base := 10
	if hex, ok := strings.CutPrefix(part, "0x"); ok {
		if hex == "" {
			return 0, true
		}
		part, base = hex, 16
	} else if len(part) > 1 && part[0] == '0' {
		part, base = part[1:], 8
	}
	n, err := strconv.ParseUint(part, base, 64)
	return n, err == nil
}

func isDomainName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

func invalidURL(why string) error { return fmt.Errorf("%w: it %s", ErrURLInvalid, why) }

func blockedHost(why string) error { return fmt.Errorf("the host is %w: %s", ErrBlocked, why) }
