// Package kafkaconn turns the APIPAY_KAFKA_* settings into kafka-go's transport and dialer: plain text or
// TLS, and SASL PLAIN (Azure Event Hubs), SCRAM-SHA-256 or SCRAM-SHA-512.
package kafkaconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Config is embedded in a service's config struct.
type Config struct {
	// Brokers are host:port; any of them leads to the cluster.
	Brokers []string `env:"APIPAY_KAFKA_BROKERS,required,notEmpty"`
	// TLS verifies the brokers by the system's roots.
	TLS bool `env:"APIPAY_KAFKA_TLS" envDefault:"false"`
	// Mechanism is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or empty.
	Mechanism string `env:"APIPAY_KAFKA_SASL_MECHANISM"`
	Username  string `env:"APIPAY_KAFKA_SASL_USERNAME"`
	Password  string `env:"APIPAY_KAFKA_SASL_PASSWORD"`
}

const (
	mechanismPlain    = "PLAIN"
	mechanismSCRAM256 = "SCRAM-SHA-256"
	mechanismSCRAM512 = "SCRAM-SHA-512"
)

// Validate finds settings that cannot be used.
func (c Config) Validate() error {
	for _, broker := range c.Brokers {
		host, port, err := net.SplitHostPort(strings.TrimSpace(broker))
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("APIPAY_KAFKA_BROKERS must be comma-separated host:port, and %q is not", broker)
		}
	}
	mechanisms := []string{"", mechanismPlain, mechanismSCRAM256, mechanismSCRAM512}
	if !slices.Contains(mechanisms, c.Mechanism) {
		return errors.New("APIPAY_KAFKA_SASL_MECHANISM must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or empty")
	}
	if c.Mechanism != "" && (c.Username == "" || c.Password == "") {
		return errors.New("APIPAY_KAFKA_SASL_USERNAME and APIPAY_KAFKA_SASL_PASSWORD are needed with APIPAY_KAFKA_SASL_MECHANISM")
	}
	if c.Mechanism == "" && (c.Username != "" || c.Password != "") {
		return errors.New("APIPAY_KAFKA_SASL_MECHANISM is needed with APIPAY_KAFKA_SASL_USERNAME and APIPAY_KAFKA_SASL_PASSWORD")
	}
	return nil
}

// Addr is the bootstrap address of clients.
func (c Config) Addr() net.Addr {
	trimmed := make([]string, len(c.Brokers))
	for i, b := range c.Brokers {
		trimmed[i] = strings.TrimSpace(b)
	}
	return kafka.TCP(trimmed...)
}

// Transport is for kafka.Client and kafka.Writer. metadataTTL is how long a cached leader may be used.
func (c Config) Transport(clientID string, metadataTTL time.Duration) (*kafka.Transport, error) {
	mechanism, err := c.sasl()
	if err != nil {
		return nil, err
	}
	return &kafka.Transport{ClientID: clientID, TLS: c.tls(), SASL: mechanism, DialTimeout: 3 * time.Second, MetadataTTL: metadataTTL}, nil
}

// Dialer is for kafka.Reader and kafka.ConsumerGroup.
func (c Config) Dialer(clientID string) (*kafka.Dialer, error) {
	mechanism, err := c.sasl()
	if err != nil {
		return nil, err
	}
	return &kafka.Dialer{ClientID: clientID, TLS: c.tls(), SASLMechanism: mechanism, Timeout: 3 * time.Second, DualStack: true}, nil
}

func (c Config) tls() *tls.Config {
	if !c.TLS {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

func (c Config) sasl() (sasl.Mechanism, error) {
	switch c.Mechanism {
	case mechanismPlain:
		return plain.Mechanism{Username: c.Username, Password: c.Password}, nil
	case mechanismSCRAM256:
		return c.scram(scram.SHA256)
	case mechanismSCRAM512:
		return c.scram(scram.SHA512)
	}
	return nil, nil //nolint:nilnil // no SASL
}

func (c Config) scram(algorithm scram.Algorithm) (sasl.Mechanism, error) {
	mechanism, err := scram.Mechanism(algorithm, c.Username, c.Password)
	if err != nil {
		// The library's error may carry the password.
		return nil, errors.New("APIPAY_KAFKA_SASL_USERNAME or APIPAY_KAFKA_SASL_PASSWORD has characters that SCRAM does not allow")
	}
	return mechanism, nil
}
