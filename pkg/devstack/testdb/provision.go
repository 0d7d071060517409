package testdb

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"apipay.io/hub/pkg/devstack/embedded"
)

// The variables that name a running Postgres (by a superuser's URI) and broker (comma-separated).
const (
	EnvDatabaseURL  = "TEST_DATABASE_URL"
	EnvKafkaBrokers = "TEST_KAFKA_BROKERS"
)

// dockerPingTimeout keeps machines without Docker from waiting for it.
const dockerPingTimeout = 500 * time.Millisecond

var (
	findServer  = sync.OnceValues(provideServer)
	findBrokers = sync.OnceValues(provideBrokers)
)

// Brokers are the addresses of a Kafka broker that this process's tests share; use topics and groups of your own names, or
// keys of your own tenants.
func Brokers(t testing.TB) []string {
	t.Helper()
	brokers, err := findBrokers()
	if err != nil {
		t.Fatalf("testdb: finding a broker: %v", err)
	}
	return brokers
}

func cluster(t testing.TB) *server {
	t.Helper()
	found, err := findServer()
	if err != nil {
		t.Fatalf("testdb: finding a Postgres server: %v", err)
	}
	return found
}

func provideServer() (*server, error) {
	dsn := os.Getenv(EnvDatabaseURL)
	if dsn == "" {
		kind := embedded.Postgres
		if dockerAnswers() {
			kind = embedded.DockerPostgres
		}
		var err error
		// It ends with the process, so nobody has to call stop.
		if dsn, _, err = embedded.Start(kind); err != nil {
			return nil, err
		}
	}
	uri, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	return &server{super: *uri}, nil
}

func provideBrokers() ([]string, error) {
	if list := os.Getenv(EnvKafkaBrokers); list != "" {
		return strings.Split(list, ","), nil
	}
	kind := embedded.Broker
	if dockerAnswers() {
		kind = embedded.DockerBroker
	}
	address, _, err := embedded.Start(kind)
	return []string{address}, err
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
