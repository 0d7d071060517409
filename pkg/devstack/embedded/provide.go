package embedded

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// The variables that name a running Postgres (by a superuser's URI) and broker (comma-separated) for tests.
const (
	EnvDatabaseURL  = "TEST_DATABASE_URL"
	EnvKafkaBrokers = "TEST_KAFKA_BROKERS"
)

// dockerPingTimeout keeps machines without Docker from waiting for it.
const dockerPingTimeout = 500 * time.Millisecond

// Provide starts Postgres or a broker: the real one's image where a Docker engine answers, else the embedded one.
func Provide(kind Kind) (address string, stop func(), err error) {
	if dockerAnswers() {
		kind = "docker-" + kind
	}
	return Start(kind)
}

// dockerAnswers tells whether a Docker engine is there, by one cheap request to its socket.
var dockerAnswers = sync.OnceValue(func() bool {
	network, address := "unix", "/var/run/docker.sock"
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		uri, err := url.Parse(host)
		if err != nil {
			return false
		}
		network, address = uri.Scheme, uri.Host+uri.Path
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
	client := http.Client{Transport: transport, Timeout: dockerPingTimeout}
	response, err := client.Get("http://docker/_ping")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
})
