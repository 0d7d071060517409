package rig

import (
	"fmt"
	"io"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/sirupsen/logrus"
)

// Proxy is the network between the relays and the broker.
type Proxy struct {
	Addr  string
	proxy *toxiproxy.Proxy
}

func newProxy(listen, upstream string) (*Proxy, error) {
	logrus.SetOutput(io.Discard) // it logs each connection
	p := toxiproxy.NewProxy()
	p.Name, p.Listen, p.Upstream = "broker", listen, upstream
	if err := p.Start(); err != nil {
		return nil, err
	}
	return &Proxy{Addr: listen, proxy: p}, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() { p.proxy.Stop() }

// LoseAnswers lets requests through, drops what the broker answers and closes each connection after the time in milliseconds.
func (p *Proxy) LoseAnswers(afterMillis int) error {
	return p.add(fmt.Sprintf(`{"name": "fault", "type": "timeout", "stream": "downstream", "attributes": {"timeout": %d}}`, afterMillis))
}

// CutRequests lets some bytes of a connection through and then closes it: in the middle of a request.
func (p *Proxy) CutRequests(afterBytes int) error {
	return p.add(fmt.Sprintf(`{"name": "fault", "type": "limit_data", "stream": "upstream", "attributes": {"bytes": %d}}`, afterBytes))
}

// Heal ends the fault.
func (p *Proxy) Heal() error { return p.proxy.Toxics.RemoveToxic("fault") }

func (p *Proxy) add(toxic string) error {
	_, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	return err
}
