package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newPolicy(t *testing.T, cidrs string) Policy {
	t.Helper()
	policy, err := ParsePolicy(cidrs)
	require.NoError(t, err)
	return policy
}

// What may be reached from nowhere, by what it is. Each is judged at dial time and as a literal in a URL.
var blockedAddresses = map[string][]string{
	"this network":        {"0.0.0.0", "0.1.2.3", "0.255.255.255"},
	"private":             {"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"},
	"shared (CGNAT)":      {"100.64.0.1", "100.100.100.200", "100.127.255.255"},
	"loopback":            {"127.0.0.1", "127.0.0.53", "127.255.255.255", "::1"},
	"link local":          {"169.254.0.1", "169.254.169.254", "169.254.170.2", "fe80::1", "febf::1"},
	"protocol assignment": {"192.0.0.1", "192.0.0.192", "192.88.99.1", "192.31.196.1", "192.52.193.1", "192.175.48.1"},
	"documentation":       {"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"},
	"benchmarking":        {"198.18.0.1", "198.19.255.255", "2001:2::1"},
	"multicast":           {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"},
	"reserved":            {"240.0.0.1", "255.255.255.255", "100::1", "5f00::1", "4000::1", "fec0::1"},
	"metadata":            {"168.63.129.16", "fd00:ec2::254", "fd20:ce::254"},
	"unspecified":         {"::"},
	"unique local":        {"fc00::1", "fdff::1"},
	"mapped":              {"::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8"},
	"compatible":          {"::127.0.0.1", "::7f00:1", "::a9fe:a9fe", "::8.8.8.8", "::2"},
	"translated":          {"::ffff:0:127.0.0.1", "::ffff:0:7f00:1", "::ffff:0:8.8.8.8"},
	"NAT64":               {"64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8", "64:ff9b:1::7f00:1", "64:ff9b:1::8.8.8.8"},
	"6to4":                {"2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:0a00:0001::1", "2002:808:808::1"},
	"Teredo":              {"2001:0:7f00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001::1"},
	"ISATAP":              {"2600:1f18::5efe:7f00:1", "2600:1f18::200:5efe:a9fe:a9fe", "2600:1f18::300:5efe:a00:1", "2600:1f18::100:5efe:a00:1", "fe80::5efe:10.0.0.1", "2600:1f18::5efe:808:808"},
}

var publicAddresses = []string{
	"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
	"168.63.129.17", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.17.255.255", "198.20.0.0",
	"223.255.255.255", "2606:4700:4700::1111", "2600:1f18::1", "2a00:1450:4001:80b::200e",
}

func TestPolicy_CheckIP(t *testing.T) {
	t.Parallel()
	policy := Policy{}
	count := 0
	for kind, texts := range blockedAddresses {
		for _, text := range texts {
			count++
			err := policy.CheckIP(netip.MustParseAddr(text))
			require.ErrorIs(t, err, ErrBlocked, "%s: %s", kind, text)
			require.Contains(t, err.Error(), "blocked by policy")
			require.NotContains(t, err.Error(), text, "the reason tells a resolved address")
		}
	}
	require.GreaterOrEqual(t, count, 80)
	for _, text := range publicAddresses {
		require.NoError(t, policy.CheckIP(netip.MustParseAddr(text)), text)
	}
	require.ErrorIs(t, policy.CheckIP(netip.Addr{}), ErrBlocked)
	require.ErrorIs(t, policy.CheckIP(netip.MustParseAddr("2606:4700::1%eth0")), ErrBlocked)
	require.ErrorIs(t, policy.CheckIP(netip.MustParseAddr("fe80::1%1")), ErrBlocked)
}

func TestPolicy_CheckIP_AllowList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cidrs            string
		allowed, blocked []string
	}{
		{
			cidrs:   "127.0.0.0/8,::1/128",
			allowed: []string{"127.0.0.1", "127.1.2.3", "::1", "8.8.8.8", "2606:4700::1"},
			blocked: []string{"10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::", "0.0.0.0", "::1%lo"},
		},
		{
			cidrs:   " 10.1.0.0/16 , fd12:3456::/32 ",
			allowed: []string{"10.1.255.255", "fd12:3456::9"},
			blocked: []string{"10.2.0.1", "127.0.0.1", "::1", "fd12:3457::1", "fd12:3456::5efe:7f00:1"},
		},
		{
			// A NAT64 network: what is translated is still judged by what it leads to.
			cidrs:   "64:ff9b::/96",
			allowed: []string{"64:ff9b::8.8.8.8"},
			blocked: []string{"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "::ffff:8.8.8.8"},
		},
		{
			// All of IPv6 does not open IPv4 by the back door.
			cidrs:   "::/0",
			allowed: []string{"::1", "fe80::1", "::ffff:8.8.8.8", "2002:808:808::1", "2600:1f18::5efe:808:808"},
			blocked: []string{"127.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2001:0:808:808::80ff:fffe", "2600:1f18::5efe:7f00:1", "fe80::1%eth0"},
		},
	} {
		policy := newPolicy(t, tt.cidrs)
		for _, text := range tt.allowed {
			require.NoError(t, policy.CheckIP(netip.MustParseAddr(text)), "%s: %s", tt.cidrs, text)
		}
		for _, text := range tt.blocked {
			require.ErrorIs(t, policy.CheckIP(netip.MustParseAddr(text)), ErrBlocked, "%s: %s", tt.cidrs, text)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	require.False(t, newPolicy(t, "").HasAllowList())
	require.False(t, newPolicy(t, "  ").HasAllowList())
	require.True(t, newPolicy(t, "::1/128").HasAllowList())
	for _, text := range []string{"127.0.0.1", "127.0.0.1/8", "10.0.0.0/33", "::1/129", "127.0.0.0/8,", "127.0.0.0/8;::1/128", "localhost", "fe80::%eth0/64", "10.0.0.0/255.0.0.0"} {
		_, err := ParsePolicy(text)
		require.Error(t, err, text)
	}
	_, err := NewPolicy(netip.Prefix{})
	require.Error(t, err)
}

func TestPolicy_Control(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "127.0.0.0/8")
	require.NoError(t, policy.Control("tcp4", "127.0.0.1:8080", nil))
	require.NoError(t, policy.Control("tcp6", "[2606:4700::1]:443", nil))
	for _, tt := range [][2]string{
		{"tcp4", "10.0.0.1:443"}, {"tcp6", "[::1]:443"}, {"tcp6", "[fe80::1%eth0]:443"}, {"udp4", "8.8.8.8:53"}, {"unix", "/tmp/x"},
		{"tcp4", "8.8.8.8:0"}, {"tcp4", "8.8.8.8"}, {"tcp4", "localhost:80"}, {"tcp4", ""},
	} {
		require.ErrorIs(t, policy.Control(tt[0], tt[1], nil), ErrBlocked, "%s %s", tt[0], tt[1])
	}
}

// A listener that counts who comes says what the dialer really did, whichever way the address was written.
func TestPolicy_Control_NoConnectionIsMade(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	blocked := net.Dialer{ControlContext: Policy{}.ControlContext}
	for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "localhost"} {
		_, err := blocked.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		require.ErrorIs(t, err, ErrBlocked, host)
	}
	allowed := net.Dialer{ControlContext: newPolicy(t, "127.0.0.0/8").ControlContext}
	dialed, err := allowed.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	defer dialed.Close()

	// The first connection that arrives is the allowed one, so none came before it; and none waits behind it.
	accepted, err := listener.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	require.Equal(t, dialed.LocalAddr().String(), accepted.RemoteAddr().String())
	require.NoError(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = listener.Accept()
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout())
}
