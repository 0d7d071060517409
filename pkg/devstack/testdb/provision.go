package testdb

import (
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"apipay.io/hub/pkg/devstack/embedded"
)

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
	dsn := os.Getenv(embedded.EnvDatabaseURL)
	if dsn == "" {
		var err error
		// It ends with the process, so nobody has to call stop.
		if dsn, _, err = embedded.Provide(embedded.Postgres); err != nil {
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
	if list := os.Getenv(embedded.EnvKafkaBrokers); list != "" {
		return strings.Split(list, ","), nil
	}
	address, _, err := embedded.Provide(embedded.Broker)
	return []string{address}, err
}
