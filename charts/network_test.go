package charts_test

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"code.dny.dev/ssrf"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"apipay.io/hub/charts/chartset"
	"apipay.io/hub/pkg/webhook"
)

// Every pod has a policy for both directions, no rule names nobody (which means everybody), and blocks of addresses are as the
// API server takes them.
func TestNetwork_Rules(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for name, template := range o.pods() {
			require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(o.policies)), func(p *networkingv1.NetworkPolicy) bool {
				return len(p.Spec.Egress) > 0 && subset(template.Labels, &p.Spec.PodSelector)
			}), name)
		}
		for name, policy := range o.policies {
			require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes, name)
			require.NotEmpty(t, policy.Spec.PodSelector.MatchLabels, "not over what is not ours")
			for _, rule := range policy.Spec.Ingress {
				requirePeers(t, name, rule.From, rule.Ports)
			}
			for _, rule := range policy.Spec.Egress {
				requirePeers(t, name, rule.To, rule.Ports)
			}
		}
	})
}

func requirePeers(t *testing.T, name string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	t.Helper()
	require.NotEmpty(t, peers, name)
	require.NotEmpty(t, ports, name)
	for _, peer := range peers {
		if peer.IPBlock == nil {
			require.True(t, peer.PodSelector != nil || peer.NamespaceSelector != nil, name)
			continue
		}
		block := netip.MustParsePrefix(peer.IPBlock.CIDR)
		require.Equal(t, block.Masked(), block, name)
		for _, except := range peer.IPBlock.Except {
			hole := netip.MustParsePrefix(except)
			require.Equal(t, hole.Masked(), hole, name)
			require.True(t, block.Overlaps(hole) && hole.Bits() > block.Bits(), "%s: %s in %s", name, hole, block)
		}
	}
}

// The pods of the umbrella that no other policy names are closed.
func TestNetwork_DefaultDeny(t *testing.T) {
	t.Parallel()
	o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: map[string]any{}})
	deny := o.policies["apipay-default-deny"]
	require.NotNil(t, deny)
	require.Empty(t, deny.Spec.Ingress)
	require.Empty(t, deny.Spec.Egress)
	for name, template := range o.pods() {
		require.True(t, subset(template.Labels, &deny.Spec.PodSelector), name)
	}
}

// The dispatcher's policy and its own check of addresses agree, address by address.
func TestNetwork_DispatcherReachesPublicAddressesOnly(t *testing.T) {
	t.Parallel()
	policy := render(t, chartset.Release{Folder: built, Chart: "webhook-dispatcher", Values: map[string]any{}}).policies["apipay-webhook-dispatcher"]
	for _, private := range []string{
		"10.0.0.1", "10.255.255.254", "172.16.0.1", "172.31.255.254", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.254",
		"127.0.0.1", "0.0.0.0", "168.63.129.16", "198.18.0.1", "224.0.0.1", "255.255.255.255",
		"::1", "::", "fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1", "64:ff9b::a00:1", "::ffff:10.0.0.1", "2001:db8::1", "2002:a00:1::",
	} {
		for _, port := range []int{1, 53, 80, 443, 5432, 8443, 9092, 65535} {
			require.False(t, reaches(policy, netip.MustParseAddr(private), port), "%s:%d", private, port)
		}
	}
	for _, addr := range addresses() {
		require.Equal(t, (webhook.Policy{}).CheckIP(addr) == nil, reaches(policy, addr, 8443), "%s", addr)
	}
}

// addresses are the ends of every block that somebody treats specially, their neighbors, and others by chance.
func addresses() []netip.Addr {
	var list []netip.Addr
	blocks := append(append([]netip.Prefix{}, ssrf.IPv4DeniedPrefixes...), ssrf.IPv6DeniedPrefixes...)
	blocks = append(blocks, ssrf.IPv6GlobalUnicast, netip.MustParsePrefix("168.63.129.16/32"))
	for _, block := range blocks {
		first := block.Masked().Addr()
		last := first.AsSlice()
		for bit := block.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, addr := range []netip.Addr{first, first.Next(), first.Prev(), end, end.Next(), end.Prev()} {
			if addr.IsValid() {
				list = append(list, addr)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var four [4]byte
		var sixteen [16]byte
		for i := range four {
			four[i] = byte(random.UintN(256))
		}
		for i := range sixteen {
			sixteen[i] = byte(random.UintN(256))
		}
		list = append(list, netip.AddrFrom4(four), netip.AddrFrom16(sixteen))
	}
	return list
}

// reaches says whether a policy lets its pods open TCP connections to an address, by the rules that name addresses.
func reaches(policy *networkingv1.NetworkPolicy, addr netip.Addr, port int) bool {
	for _, rule := range policy.Spec.Egress {
		open := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
			if *p.Protocol != corev1.ProtocolTCP {
				return false
			}
			last := p.Port.IntValue()
			if p.EndPort != nil {
				last = int(*p.EndPort)
			}
			return port >= p.Port.IntValue() && port <= last
		})
		if open && slices.ContainsFunc(rule.To, func(p networkingv1.NetworkPolicyPeer) bool { return covers(p.IPBlock, addr) }) {
			return true
		}
	}
	return false
}

func covers(block *networkingv1.IPBlock, addr netip.Addr) bool {
	if block == nil || !netip.MustParsePrefix(block.CIDR).Contains(addr) {
		return false
	}
	return !slices.ContainsFunc(block.Except, func(hole string) bool { return netip.MustParsePrefix(hole).Contains(addr) })
}

// What is opened on purpose is open, on its port alone, and nothing beside it.
func TestNetwork_Openings(t *testing.T) {
	t.Parallel()
	full := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["full"]}).policies["apipay-webhook-dispatcher"]
	for address, want := range map[string]bool{
		"10.20.3.4:80": true, "10.20.3.4:8443": true, "10.21.0.1:80": false, // APIPAY_WEBHOOK_ALLOW_CIDRS
		"10.30.0.8:3128": true, "10.30.0.8:443": false, "10.30.0.9:3128": false, // extraEgress
		"10.0.0.10:53": true, "10.0.0.10:443": false, // APIPAY_WEBHOOK_DNS
		"198.19.0.1:443": false, "93.184.215.14:443": true,
		"[2a00:1450:4000::1]:443": false, "[2a00:1450:4001::1]:443": true, // neverPublic
	} {
		target := netip.MustParseAddrPort(address)
		require.Equal(t, want, reaches(full, target.Addr(), int(target.Port())), address)
	}
	hubs := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: examples(t)["event-hubs"]})
	for name, kafka := range map[string]bool{"payment-api": false, "admin-api": false, "outbox-relay": true, "webhook-dispatcher": true} {
		policy := hubs.policies["apipay-"+name]
		require.Equal(t, kafka, reaches(policy, netip.MustParseAddr("10.40.8.9"), 9093), name)
		require.False(t, reaches(policy, netip.MustParseAddr("10.40.8.9"), 5432), name)
	}
}

// Only the dispatcher talks to the world by itself: the others do once a gateway or an issuer is named, and by https alone.
func TestNetwork_OthersStayInside(t *testing.T) {
	t.Parallel()
	public := netip.MustParseAddr("93.184.215.14")
	for values, open := range map[string][]string{
		"{}": nil,
		"payment-api: {config: {APIPAY_GATEWAY_LIVE: acquirer}}":                                           {"payment-api"},
		"admin-api: {config: {APIPAY_OIDC_ISSUER: 'https://login.example.com', APIPAY_OIDC_AUDIENCE: a}}":  {"admin-api"},
		"global: {config: {APIPAY_OIDC_ISSUER: 'https://login.example.com', APIPAY_OIDC_AUDIENCE: admin}}": {"admin-api"},
	} {
		o := render(t, chartset.Release{Folder: built, Chart: "apipay", Values: parse(t, values)})
		for _, name := range []string{"payment-api", "admin-api", "outbox-relay", "migrations"} {
			require.Equal(t, slices.Contains(open, name), reaches(o.policies["apipay-"+name], public, 443), "%s: %s", name, values)
			require.False(t, reaches(o.policies["apipay-"+name], public, 80), "%s: %s", name, values)
		}
	}
}

// The ports of a policy follow the settings: brokers, database, collector, the pods' own.
func TestNetwork_PortsFollow(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, o objects) {
		for service, template := range o.pods() {
			if service == "migrate" {
				continue
			}
			policy := o.policies[template.Spec.ServiceAccountName]
			settings := o.settings(t, template.Spec.Containers[0])
			var open []string
			for _, rule := range policy.Spec.Egress {
				for _, port := range rule.Ports {
					open = append(open, port.Port.String())
				}
			}
			require.Contains(t, open, "53", service)
			require.Contains(t, open, "5432", service)
			if brokers := settings["APIPAY_KAFKA_BROKERS"]; brokers != "" {
				for _, broker := range strings.Split(brokers, ",") {
					_, port, err := net.SplitHostPort(broker)
					require.NoError(t, err)
					require.Contains(t, open, port, service)
				}
			} else {
				require.NotContains(t, open, "9092", service)
			}
			require.Equal(t, settings["OTEL_EXPORTER_OTLP_ENDPOINT"] != "", slices.Contains(open, "4318"), service)
			var called []string
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					called = append(called, port.Port.String())
				}
			}
			_, serves := o.port(template, "http")
			require.Equal(t, map[bool][]string{true: {"ops", "http"}, false: {"ops"}}[serves], called, service)
		}
	})
	o := render(t, chartset.Release{Folder: built, Chart: "outbox-relay", Values: parse(t, "global: {database: {ports: [5432, 6432]}}")})
	var open []int
	for _, port := range o.policies["apipay-outbox-relay"].Spec.Egress[1].Ports {
		open = append(open, port.Port.IntValue())
	}
	require.Equal(t, []int{5432, 6432}, open)
}
