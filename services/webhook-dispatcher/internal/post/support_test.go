package post

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

var silent = log.New(io.Discard, "", 0)

type mood int

const (
	moodKnown mood = iota
	moodFails
	moodSilent
)

// dnsServer is a resolver on a UDP socket.
type dnsServer struct {
	addr    string
	failing atomic.Bool
	// mood, if set, says how a name is answered; "." is the root.
	mood  atomic.Pointer[func(name string) mood]
	close func()
	mu    sync.Mutex
	names map[string][]netip.Addr
	// flips are names whose answer is another one at each look-up, which is two questions.
	flips map[string][]netip.Addr
	asked int
}

func newDNS(t *testing.T) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &dnsServer{addr: conn.LocalAddr().String(), names: map[string][]netip.Addr{}, flips: map[string][]netip.Addr{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := s.answer(buffer[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	s.close = sync.OnceFunc(func() { conn.Close(); <-done })
	t.Cleanup(s.close)
	return s
}

func (s *dnsServer) set(name string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = nil
	for _, a := range addrs {
		s.names[name] = append(s.names[name], netip.MustParseAddr(a))
	}
}

func (s *dnsServer) flip(name string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flips[name], s.asked = nil, 0
	for _, a := range addrs {
		s.flips[name] = append(s.flips[name], netip.MustParseAddr(a))
	}
}

func (s *dnsServer) answer(query []byte) []byte {
	var message dnsmessage.Message
	if message.Unpack(query) != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	message.Response, message.Additionals = true, nil
	s.mu.Lock()
	name := strings.ToLower(question.Name.String())
	addrs, known := s.names[name]
	if flipping := s.flips[name]; len(flipping) > 0 {
		turn := s.asked / 2 % len(flipping)
		addrs, known = flipping[turn:turn+1], true
		s.asked++
	}
	s.mu.Unlock()
	answered := moodKnown
	if of := s.mood.Load(); of != nil {
		answered = (*of)(name)
	}
	switch {
	case answered == moodSilent:
		return nil
	case s.failing.Load(), answered == moodFails:
		addrs = nil
		message.RCode = dnsmessage.RCodeServerFailure
	case !known:
		message.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET}
		if a.Is4() && question.Type == dnsmessage.TypeA {
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		}
		if a.Is6() && question.Type == dnsmessage.TypeAAAA {
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	packed, err := message.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	a := &authority{key: key, pool: x509.NewCertPool()}
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.certificate)
	return a
}

func (a *authority) issue(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
