package app

import (
	"errors"
	"fmt"
	"time"

	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/payment-api/internal/gateway/sandbox"
	"apipay.io/hub/services/payment-api/internal/payments"
)

// Config is payment-api's environment. The published list of all services is config.Variables.
type Config struct {
	// DatabaseURL connects as apipay_app. pool_max_conns in it sizes the pool; default 16.
	DatabaseURL string `env:"APIPAY_DATABASE_URL,required,notEmpty"`
	// HTTPAddr is host:port of the API.
	HTTPAddr string `env:"APIPAY_HTTP_ADDR" envDefault:"127.0.0.1:8080"`
	// OpsAddr is host:port of /livez, /readyz and /metrics.
	OpsAddr  string `env:"APIPAY_OPS_ADDR" envDefault:"127.0.0.1:8082"`
	LogLevel string `env:"APIPAY_LOG_LEVEL" envDefault:"info"`
	// Dev permits what only a development stack may do: the sandbox as live gateway.
	Dev bool `env:"APIPAY_DEV"`
	// SecretsKeyset is the Tink key set that encrypts signing secrets; cursors are signed by a key made from it, so all
	// replicas need the same one.
	SecretsKeyset string `env:"APIPAY_SECRETS_KEYSET,required,notEmpty"`
	// AllowCIDRs are internal receivers that may be endpoints; where set, http:// URLs are accepted.
	AllowCIDRs string `env:"APIPAY_WEBHOOK_ALLOW_CIDRS"`

	// GatewayLive names the live connector; without one, live confirm and refund answer 503.
	GatewayLive string `env:"APIPAY_GATEWAY_LIVE"`
	// GatewayTimeout bounds one call; longer means fewer unknown outcomes and slower answers.
	GatewayTimeout time.Duration `env:"APIPAY_GATEWAY_TIMEOUT" envDefault:"10s"`
	// VisibilityDelay is how long after a lease's end a gateway's "not found" proves nothing.
	VisibilityDelay time.Duration `env:"APIPAY_GATEWAY_VISIBILITY_DELAY" envDefault:"60s"`
	// IdempotencyLease is how long a request owns its key: until then nobody takes over from a crashed one.
	IdempotencyLease time.Duration `env:"APIPAY_IDEMPOTENCY_LEASE" envDefault:"90s"`
	// IdempotencyTTL is how long an answer can be replayed.
	IdempotencyTTL time.Duration `env:"APIPAY_IDEMPOTENCY_TTL" envDefault:"168h"`
	// AmountMin are least amounts in minor units, such as USD=50,EUR=50; 1 where not named.
	AmountMin payments.AmountMin `env:"APIPAY_AMOUNT_MIN"`

	// RateLimitRPS is per tenant and mode, in each replica; 0 is off.
	RateLimitRPS float64 `env:"APIPAY_RATE_LIMIT_RPS" envDefault:"0"`
	// RateLimitBurst at 0 is twice the rate.
	RateLimitBurst int `env:"APIPAY_RATE_LIMIT_BURST" envDefault:"0"`
}

// Validate refuses what can be parsed and not be used.
func (c *Config) Validate() error {
	if err := c.money().Validate(); err != nil {
		return err
	}
	switch c.GatewayLive {
	case "":
	case sandbox.Name:
		if !c.Dev {
			return errors.New("APIPAY_GATEWAY_LIVE=sandbox moves no money: it needs APIPAY_DEV=1")
		}
	default:
		return fmt.Errorf("APIPAY_GATEWAY_LIVE=%s names no connector of this build (there is: sandbox, with APIPAY_DEV=1)", c.GatewayLive)
	}
	if !(c.RateLimitRPS >= 0 && c.RateLimitRPS <= 1e6) { // NaN is neither
		return errors.New("APIPAY_RATE_LIMIT_RPS must be from 0 to 1000000")
	}
	if c.RateLimitBurst < 0 {
		return errors.New("APIPAY_RATE_LIMIT_BURST must not be negative")
	}
	if _, err := webhook.ParsePolicy(c.AllowCIDRs); err != nil {
		return fmt.Errorf("APIPAY_WEBHOOK_ALLOW_CIDRS: %w", err)
	}
	if _, err := webhook.ParseKeyset(c.SecretsKeyset); err != nil {
		return fmt.Errorf("APIPAY_SECRETS_KEYSET: %w", err)
	}
	return nil
}

// money are the limits of the money path.
func (c *Config) money() payments.Config {
	return payments.Config{
		GatewayTimeout: c.GatewayTimeout, VisibilityDelay: c.VisibilityDelay, Lease: c.IdempotencyLease, KeyTTL: c.IdempotencyTTL,
		AmountMin: c.AmountMin,
	}
}
