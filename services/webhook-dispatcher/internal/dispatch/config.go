// Package dispatch is the path of an outbound webhook: consume -> materialize -> claim -> send -> record.
package dispatch

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"apipay.io/hub/pkg/kafkaconn"
	"apipay.io/hub/pkg/webhook"
)

const (
	// leaseMargin is what a lease must have above the timeout: for the record of the result, and for clocks that drift.
	leaseMargin = 20 * time.Second
	// minRetention keeps what retries, recoveries and the merchant's event list still need.
	minRetention = 30 * 24 * time.Hour
	maxAttempts  = 50
)

// Config is read from the environment; pkg/config has the published list.
type Config struct {
	// DatabaseURL is the libpq URI of the role apipay_worker.
	DatabaseURL string `env:"APIPAY_DATABASE_URL,required,notEmpty"`
	kafkaconn.Config
	// OpsAddr serves health and metrics.
	OpsAddr string `env:"APIPAY_OPS_ADDR" envDefault:"127.0.0.1:8085"`
	// LogLevel is debug, info, warn or error. Successful attempts are told at debug.
	LogLevel string `env:"APIPAY_LOG_LEVEL" envDefault:"info"`
	// RetrySchedule are the waits after failed attempts: one attempt more than entries.
	RetrySchedule []time.Duration `env:"APIPAY_WEBHOOK_RETRY_SCHEDULE" envDefault:"1m,5m,30m,2h,12h"`
	// Timeout is the one limit of an attempt; longer ones let a hanging endpoint hold its slots longer.
	Timeout time.Duration `env:"APIPAY_WEBHOOK_TIMEOUT" envDefault:"10s"`
	// Lease is how long a claimed delivery is ours: what a killed dispatcher had is sent by another one after that.
	Lease time.Duration `env:"APIPAY_WEBHOOK_LEASE" envDefault:"60s"`
	// EndpointConcurrency caps the POSTs in flight per endpoint, over all replicas.
	EndpointConcurrency int `env:"APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY" envDefault:"4"`
	// AllowCIDRs are internal receivers; where set, http:// URLs are sent to.
	AllowCIDRs string `env:"APIPAY_WEBHOOK_ALLOW_CIDRS"`
	// ProxyURL is an HTTP proxy for all webhooks.
	ProxyURL string `env:"APIPAY_WEBHOOK_PROXY_URL"`
	// DNS is the resolver's host:port; empty for the system's.
	DNS string `env:"APIPAY_WEBHOOK_DNS"`
	// SecretsKeyset is the Tink AEAD key set that opens signing secrets.
	SecretsKeyset string `env:"APIPAY_SECRETS_KEYSET,required,notEmpty"`
	// SecretsKeysetFile is where the key set came from, if from a file: a change of it is noticed within seconds.
	SecretsKeysetFile string `env:"APIPAY_SECRETS_KEYSET_FILE"`
	// Retention is how long deliveries, their attempts and events are kept.
	Retention time.Duration `env:"APIPAY_RETENTION_DELIVERIES" envDefault:"2160h"`
}

// Validate finds values that cannot be used.
func (c Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	if c.Timeout < 100*time.Millisecond || c.Timeout > 5*time.Minute {
		return errors.New("APIPAY_WEBHOOK_TIMEOUT must be between 100ms and 5m")
	}
	if c.Lease < c.Timeout+leaseMargin {
		return fmt.Errorf("APIPAY_WEBHOOK_LEASE must be at least APIPAY_WEBHOOK_TIMEOUT plus %s, which is %s", leaseMargin, c.Timeout+leaseMargin)
	}
	if c.EndpointConcurrency < 1 || c.EndpointConcurrency > 64 {
		return errors.New("APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY must be between 1 and 64")
	}
	if c.Retention < minRetention {
		return fmt.Errorf("APIPAY_RETENTION_DELIVERIES must be at least %s", minRetention)
	}
	if len(c.RetrySchedule) == 0 || len(c.RetrySchedule) >= maxAttempts {
		return fmt.Errorf("APIPAY_WEBHOOK_RETRY_SCHEDULE must have 1 to %d entries", maxAttempts-1)
	}
	for _, wait := range c.RetrySchedule {
		if wait <= 0 || wait > 30*24*time.Hour {
			return errors.New("APIPAY_WEBHOOK_RETRY_SCHEDULE must hold waits above 0 and up to 720h")
		}
	}
	if _, err := c.proxy(); err != nil {
		return err
	}
	if _, err := webhook.ParsePolicy(c.AllowCIDRs); err != nil {
		return fmt.Errorf("APIPAY_WEBHOOK_ALLOW_CIDRS cannot be used: %w", err)
	}
	if _, err := webhook.ParseKeyset(c.SecretsKeyset); err != nil {
		return fmt.Errorf("APIPAY_SECRETS_KEYSET cannot be used: %w", err)
	}
	if c.DNS != "" && !isHostPort(c.DNS) {
		return errors.New("APIPAY_WEBHOOK_DNS must be host:port")
	}
	return nil
}

func (c Config) proxy() (*url.URL, error) {
	if c.ProxyURL == "" {
		return nil, nil //nolint:nilnil // no proxy
	}
	// The URL may hold a password, so it is not repeated.
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil || proxy.Scheme != "http" && proxy.Scheme != "https" || proxy.Hostname() == "" || strings.Trim(proxy.Path, "/") != "" {
		return nil, errors.New("APIPAY_WEBHOOK_PROXY_URL must be http://host:port or https://host:port")
	}
	return proxy, nil
}
