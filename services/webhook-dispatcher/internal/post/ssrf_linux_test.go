package post

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/webhook"
)

// forbidden are addresses, by what they are; each is tried as a literal and as what a name resolves to.
var forbidden = strings.Fields(`
	127.0.0.1 127.0.0.2 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.254
	169.254.169.254 169.254.170.2 169.254.0.1 172.16.0.1 172.31.255.254 192.0.0.1 192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1
	192.168.0.1 192.168.255.254 198.18.0.1 198.19.255.254 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1
	255.255.255.255 168.63.129.16
	:: ::1 ::127.0.0.1 ::10.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0.0.0.0
	::ffff:0:127.0.0.1 ::ffff:0:a9fe:a9fe 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::8.8.8.8 64:ff9b:1::7f00:1
	100::1 2001::1 2001:0:7f00:1::1 2001:2::1 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe::1 3fff::1 5f00::1
	fc00::1 fd00::1 fd00:ec2::254 fd20:ce::254 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1 2600:1f18::5efe:7f00:1
	2600:1f18::200:5efe:a00:1`)

// spellings are hosts that some parser, somewhere, reads as an address inside.
var spellings = strings.Fields(`
	localhost localhost. LOCALHOST LocalHost. localhost.localdomain ip6-localhost ip6-loopback foo.localhost
	127.1 127.0.1 127.000.000.001 127.0.0.1. 0127.0.0.1 0177.0.0.1 0x7f.0.0.1 0x7f.1 0x7f000001 0X7F000001 2130706433 017700000001
	4294967295 0 0. 0x0 00 1 127.0.0.1.. 127.0.0.01 127.0.0.0x1 10.1 0xa000001 167772161 012.0.0.1 192.168.1 0xc0a80101 3232235777
	2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518 169.16689662 0xA9.0xFE.0xA9.0xFE
	①②⑦.⓪.⓪.① １２７.０.０.１ 127。0。0。1 127．0．0．1 ⓛocalhost loc%61lhost 127%2e0%2e0%2e1 %31%32%37.0.0.1
	[::1] [0:0:0:0:0:0:0:1] [0000::1] [::0001] [::] [0::0] [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:7F00:0001] [0:0:0:0:0:ffff:7f00:1]
	[::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [2002:7f00:1::] [2002:7f00:0001::1] [fe80::1%25lo] [fe80::1%25eth0] [::1%25lo]
	[fe80::5efe:7f00:1] [fe80::5efe:127.0.0.1] [fd00::1] [::ffff:0x7f.0.0.1] [127.0.0.1] [1] ::1 ::ffff:127.0.0.1
	metadata metadata.google.internal metadata.google.internal. instance-data 169.254.169.254 169.254.169.254. 100.100.100.200`)

const inNetns = "POST_TEST_NETNS"

// D1, D2, B50, B51. Where the kernel lets us, in a network namespace in which every address there is is this machine's, and
// listened on: so a connection that is made anywhere is seen. The test shows first that it would be.
func TestPost_NothingForbiddenIsReached(t *testing.T) {
	t.Parallel()
	if os.Getenv(inNetns) != "" {
		for _, command := range []string{"link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"} {
			out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(command)...).CombinedOutput()
			require.NoError(t, err, string(out))
		}
		nothingForbidden(t, true)
		return
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNetns+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	_, err = exec.LookPath("ip")
	var out []byte
	if err == nil {
		out, err = cmd.CombinedOutput()
	}
	if err != nil && !strings.Contains(string(out), "--- FAIL") {
		t.Logf("no network namespace (%v): only loopback is listened on", err)
		nothingForbidden(t, false)
		return
	}
	require.NoError(t, err, string(out))
	t.Log(string(out))
}

// destinations are the local addresses that anybody connected to.
type destinations struct {
	mu   sync.Mutex
	list []netip.Addr
	port uint16
}

func listenEverywhere(t *testing.T) *destinations {
	t.Helper()
	listener, err := net.Listen("tcp", "[::]:0")
	require.NoError(t, err)
	d := &destinations{port: netip.MustParseAddrPort(listener.Addr().String()).Port()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			d.list = append(d.list, netip.MustParseAddrPort(conn.LocalAddr().String()).Addr().Unmap())
			d.mu.Unlock()
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return d
}

func (d *destinations) take() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}

func (d *destinations) url(host string) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return "https://" + host + ":" + strconv.Itoa(int(d.port)) + "/hook"
}

func nothingForbidden(t *testing.T, everywhere bool) {
	t.Helper()
	listener, dns := listenEverywhere(t), newDNS(t)
	open := newClient(t, func(c *Config) { c.DNS, c.Policy = dns.addr, webhookPolicy("0.0.0.0/0", "::/0") })
	strict := newClient(t, func(c *Config) { c.DNS, c.Policy = dns.addr, webhook.Policy{} })

	// The listener hears what gets out. Multicast, broadcast and link-local addresses cannot be connected to by anybody.
	heard := 0
	for i, text := range forbidden {
		addr := netip.MustParseAddr(text)
		name := fmt.Sprintf("n%d.example.", i)
		dns.set(name, text)
		if !everywhere && !addr.Unmap().IsLoopback() {
			continue
		}
		open.try(t, listener.url(name))
		if got := listener.take(); len(got) > 0 {
			heard++
		} else if everywhere {
			require.True(t, addr.Unmap().IsMulticast() || addr.IsLinkLocalUnicast() || addr.Unmap() == netip.MustParseAddr("255.255.255.255"), text)
		}
	}
	require.Positive(t, heard)
	if everywhere {
		require.Greater(t, heard, 50)
		t.Logf("the listener heard %d of %d addresses with everything allowed", heard, len(forbidden))
	}

	tried := 0
	for i, text := range forbidden {
		for _, host := range []string{text, fmt.Sprintf("n%d.example", i), fmt.Sprintf("N%d.Example.", i)} {
			tried++
			result := strict.try(t, listener.url(host))
			require.Equal(t, ClassBlocked, result.Class, "%s as %s", text, host)
			require.Empty(t, result.RemoteIP, "nothing of the address is shown")
			require.Empty(t, result.Excerpt)
		}
	}
	for _, host := range spellings {
		tried++
		target := "https://" + host + ":" + strconv.Itoa(int(listener.port)) + "/hook"
		require.Equal(t, ClassBlocked, strict.try(t, target).Class, host)
		err := webhook.Policy{}.CheckURL(target)
		require.Error(t, err, host)
	}
	require.Empty(t, listener.take(), "connections were made")
	require.GreaterOrEqual(t, len(spellings), 80)
	t.Logf("%d spellings, names and addresses tried, no connection", tried)

	rebinding(t, listener, dns, strict, everywhere)
	require.NotEmpty(t, allowed(t, listener, dns), "the allow list opens what it names")
}

// rebinding: D2. The answers flip between a public and an inner address at each look-up, or hold both.
func rebinding(t *testing.T, listener *destinations, dns *dnsServer, c *Client, everywhere bool) {
	t.Helper()
	const public = "8.8.8.8"
	if !everywhere {
		return // the public address would be asked
	}
	for _, inner := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"} {
		dns.flip("flip.example.", public, inner)
		dns.set("both.example.", public, inner)
		dns.set("both-turned.example.", inner, public)
		for turn := range 20 {
			dns.set("turning.example.", []string{public, inner}[turn%2])
			for _, host := range []string{"turning.example", "flip.example", "both.example", "both-turned.example"} {
				c.try(t, listener.url(host))
			}
		}
		got := listener.take()
		require.NotEmpty(t, got, "half of the turning name's look-ups are public")
		for _, to := range got {
			require.Equal(t, public, to.String())
		}
		require.LessOrEqual(t, len(got), 10+20, "those that hold both are never connected to")
	}
}

func allowed(t *testing.T, listener *destinations, dns *dnsServer) []netip.Addr {
	t.Helper()
	dns.set("ours.example.", "127.0.0.7")
	dns.set("theirs.example.", "127.0.0.8")
	c := newClient(t, func(c *Config) { c.DNS, c.Policy = dns.addr, webhookPolicy("127.0.0.7/32") })
	require.Equal(t, ClassBlocked, c.try(t, listener.url("theirs.example")).Class)
	c.try(t, listener.url("ours.example"))
	c.Post(t.Context(), Request{EndpointID: uuid.New(), URL: listener.url("127.0.0.7"), Header: http.Header{}, Now: time.Now()})
	got := listener.take()
	require.True(t, !slices.ContainsFunc(got, func(a netip.Addr) bool { return a != netip.MustParseAddr("127.0.0.7") }))
	return got
}
