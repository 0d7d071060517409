package webhook

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Hosts that mean an address some resolver, browser or proxy would reach although net/netip does not read them, and the
// names that mean one.
var blockedHosts = []string{
	// IPv4 in the spellings of inet_aton: loopback, metadata, private, this network.
	"127.1", "127.0.1", "127.0.0.01", "0177.0.0.1", "0177.1", "0x7f.0.0.1", "0x7f.1", "0X7F.0x1", "127.0x1", "127.0.0.0x1",
	"2130706433", "017700000001", "0x7f000001", "0x7F000001", "00000000177.0.0.1", "0x00000000000000007f.1",
	"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.0xfe.0xa9.0xfe", "169.0376.0xa9fe",
	"10.1", "012.0.0.1", "167772161", "3232235777", "192.168.257", "0xc0a80101",
	"0", "00", "0x0", "0x", "0.0", "0x.0x.0", "0.0.0.0", "4294967295", "037777777777",
	// With trailing dots.
	"127.0.0.1.", "127.0.0.1..", "127.1.", "2130706433.", "0x7f000001.", "8.8.8.8.",
	// Public, but not as everybody writes it.
	"8.8", "134744072", "010.010.010.010", "0x08080808", "8.8.8.010",
	// Numbers that are no address, or a different one to each reader.
	"256.1.1.1", "1.2.3.4.5", "1.256.1", "4294967296", "08.8.8.8", "127.0.0.09", "1..1", "foo.1", "0xffffffffff", "example.0x1",
	// Full-width and circled digits, which IDNA turns into plain ones, and its other dots.
	"１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "127．0．0．1", "169｡254｡169｡254", "１.１.１.１",
	// IPv6 in brackets, in every way that it is written.
	"[0:0:0:0:0:0:0:1]", "[::0001]", "[0::1]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::0.0.0.1]", "[::FFFF:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]",
	"[FE80::1]", "[fe80::1%25eth0]", "[fe80::1%251]", "[::1%25lo]", "[2606:4700::1%25eth0]", "[64:FF9B::7F00:1]",
	"[2606:4700:4700:0:0:0:0:1111]", "[2606:4700:4700::0:1111]",
	// Names.
	"localhost", "LOCALHOST", "LocalHost.", "localhost.", "a.localhost", "a.b.localhost.", "localhost.localdomain", "localhost6",
	"ip6-localhost", "ip6-loopback", "ⓛocalhost", "ｌｏｃａｌｈｏｓｔ", "localhost。", "metadata", "metadata.google.internal", "METADATA.google.internal.",
	"x.metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
}

func TestPolicy_CheckURL_Hosts(t *testing.T) {
	t.Parallel()
	hosts := append([]string(nil), blockedHosts...)
	for _, texts := range blockedAddresses {
		for _, text := range texts {
			if strings.Contains(text, ":") {
				text = "[" + text + "]"
			}
			hosts = append(hosts, text)
		}
	}
	for _, host := range hosts {
		for _, shape := range []string{"https://HOST", "https://HOST/", "https://HOST:8443/hook?a=b", "HTTPS://HOST/"} {
			raw := strings.Replace(shape, "HOST", host, 1)
			err := Policy{}.CheckURL(raw)
			require.ErrorIs(t, err, ErrBlocked, raw)
			require.Contains(t, err.Error(), "blocked by policy", raw)
		}
	}
}

func TestPolicy_CheckURL_Accepts(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"https://example.com", "https://example.com/", "https://example.com/hook", "https://example.com:8443/hook?token=a%20b&c",
		"https://EXAMPLE.com/Hook", "https://example.com.:443/", "https://example.com:1/", "https://example.com:65535/", "https://example.com?x",
		"https://bücher.example/straße", "https://xn--bcher-kva.example/", "https://例え.テスト/", "https://my_hook.example.com/", "https://a-b.example/",
		"https://1.1.1.1/", "https://8.8.8.8:8443/", "https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]:8443/", "https://[2A00:1450::200E]/",
		"https://127.0.0.1.nip.io/", "https://localhost.example.com/", "https://notlocalhost/", "https://mylocalhost.com", "https://0x7f.example/", "https://1e3/",
		"https://metadata.example.com/", "https://internal-receiver/", "https://dead.beef/", "https://1and1.com/", "https://example.com/a\\b", "https://example.com/" + strings.Repeat("a", 2028),
	} {
		require.NoError(t, Policy{}.CheckURL(raw), raw)
	}
}

func TestPolicy_CheckURL_Form(t *testing.T) {
	t.Parallel()
	marker := "s3cr3t-marker"
	for _, raw := range []string{
		"", " ", "example.com", "//example.com/", "/hook", "https:", "https:/", "https://", "https:///hook", "https:example.com", "https:/example.com",
		"https://?x", "https://:443/", "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)",
		"https+unix://example.com/", "https://user@example.com/", "https://user:" + marker + "@example.com/", "https://@example.com/", "https://:@example.com/",
		"https://example.com/#fragment", "https://example.com/#", "https://example.com#@127.0.0.1/",
		"https://example.com:0/", "https://example.com:65536/", "https://example.com:-1/", "https://example.com:/", "https://example.com:0443/", "https://example.com:80:80/", "https://example.com:https/",
		"https://example.com:4294967739/", "https://example.com:443@127.0.0.1/",
		" https://example.com/", "https://example.com/ ", "https://exa mple.com/", "https://example.com/a b", "https://example.com/\n", "https://example.com/\x00", "https://example.com\x00.internal/",
		"https://example.com/\r\nX-Injected: 1", "https://example.com/\t", "https://example.com/\x7f", "https://example.com/\u00a0", "https://example.com/\u2028", "https://exa\u200bmple.com/", "https://local\u00adhost/",
		"https://example.com/\u202egnp", "https://example.com/\u0085", "https://example.com/\xff", "https://\xff.example/",
		"https://example.com\\@127.0.0.1/", "https://example.com%2f@127.0.0.1/", "https://%31%32%37.0.0.1/", "https://127.0.0.1%00.example.com/", "https://example.com%20/", "https://example.com/%zz",
		"https://exa*mple.com/", "https://*.example.com/", "https://a,b.example/", "https://(example).com/", "https://example..com/", "https://.example.com/", "https://example.com../", "https://./", "https://-1/", "https://a-.example/", "https://../",
		"https://::1/", "https://2606:4700::1/", "https://[::1/", "https://::1]/", "https://[]/", "https://[127.0.0.1]/", "https://[8.8.8.8]/", "https://[v1.fe80::1]/", "https://[localhost]/", "https://[::ffff:0x7f.1]/", "https://[::1]x/", "https://[::1]:x/", "https://[::1]443/",
		"https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("abc.", 64) + "example/", "https://xn--\u00fc.example/",
		"https://example.com/" + strings.Repeat("a", 2029), "https://example.com/?t=" + marker + "#x",
	} {
		err := Policy{}.CheckURL(raw)
		require.ErrorIs(t, err, ErrURLInvalid, "%q", raw)
		require.NotContains(t, err.Error(), marker)
	}
}

func TestPolicy_CheckURL_AllowList(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "127.0.0.0/8,::1/128")
	for _, raw := range []string{
		"http://127.0.0.1:9000/hook", "https://127.0.0.1:9000/hook", "http://127.8.9.10/", "http://[::1]:9000/", "http://localhost:9000/", "http://LOCALHOST/", "http://a.localhost/",
		"http://example.com/", "https://example.com/", "http://8.8.8.8/",
	} {
		require.NoError(t, policy.CheckURL(raw), raw)
	}
	for _, raw := range []string{
		"http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.0.0.1./", "http://localhost./", "http://１２７.０.０.１/", "http://ⓛocalhost/",
		"http://[0:0:0:0:0:0:0:1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[::1%25lo]/",
		"http://0.0.0.0/", "http://[::]/", "http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://100.64.0.1/",
	} {
		require.ErrorIs(t, policy.CheckURL(raw), ErrBlocked, raw)
	}
	require.ErrorIs(t, policy.CheckURL("ftp://127.0.0.1/"), ErrURLInvalid)
	require.ErrorIs(t, policy.CheckURL("http://user:pw@127.0.0.1/"), ErrURLInvalid)
	require.ErrorIs(t, newPolicy(t, "10.0.0.0/8").CheckURL("http://localhost/"), ErrBlocked)
}

// Whatever is accepted as an address is what net/netip reads, and passes CheckIP; nothing makes it panic.
func FuzzPolicy_CheckURL(f *testing.F) {
	for _, host := range blockedHosts {
		f.Add("https://" + host + "/")
	}
	f.Add("https://user:pw@example.com:443/a?b#c")
	f.Fuzz(func(t *testing.T, raw string) {
		policy := Policy{}
		if policy.CheckURL(raw) != nil {
			return
		}
		require.Truef(t, strings.EqualFold(raw[:8], "https://"), "%q", raw)
		host, _, _ := strings.Cut(raw[8:], "/")
		host, _, _ = strings.Cut(host, "?")
		if strings.HasPrefix(host, "[") {
			host = host[1:strings.IndexByte(host, ']')]
		} else {
			host, _, _ = strings.Cut(host, ":")
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			require.NoErrorf(t, policy.CheckIP(addr), "%q", raw)
		}
	})
}
