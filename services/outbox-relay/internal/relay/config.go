package relay

import (
	"errors"
	"fmt"
	"time"

	"apipay.io/hub/pkg/kafkaconn"
)

// Config is the relay's environment.
type Config struct {
	// DatabaseURL is a libpq URI of the role apipay_worker.
	DatabaseURL string `env:"APIPAY_DATABASE_URL,required,notEmpty"`
	// OpsAddr is the host:port of /livez, /readyz and /metrics.
	OpsAddr string `env:"APIPAY_OPS_ADDR" envDefault:"127.0.0.1:8084"`
	// LogLevel is debug, info, warn or error. At debug there is one line per published batch.
	LogLevel string `env:"APIPAY_LOG_LEVEL" envDefault:"info"`
	// Kafka says where the brokers are and how to log in.
	kafkaconn.Config
	// CreateTopics makes missing topics with 16 partitions; for development.
	CreateTopics bool `env:"APIPAY_KAFKA_CREATE_TOPICS" envDefault:"false"`
	// Batch is the number of events per claim of a lane: more is faster in a backlog, and more to send
	// again after a crash.
	Batch int `env:"APIPAY_OUTBOX_BATCH" envDefault:"500"`
	// Retention is how long published events are kept. The merchant's event list reaches back 30 days.
	Retention time.Duration `env:"APIPAY_RETENTION_OUTBOX" envDefault:"840h"`
}

const (
	maxBatch     = 10_000
	minRetention = 30 * 24 * time.Hour
)

// Validate finds values that cannot be used.
func (c *Config) Validate() error {
	if c.Batch < 1 || c.Batch > maxBatch {
		return fmt.Errorf("APIPAY_OUTBOX_BATCH must be between 1 and %d", maxBatch)
	}
	if c.Retention < minRetention {
		return errors.New("APIPAY_RETENTION_OUTBOX must be at least 720h, since the event list reaches back 30 days")
	}
	return c.Config.Validate()
}
