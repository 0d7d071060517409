// Package app wires admin-api: configuration, ports, database, staff, API.
package app

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/services/admin-api/internal/console"
)

// Config is the environment of admin-api.
type Config struct {
	// DatabaseURL is the libpq URI of the role apipay_admin.
	DatabaseURL string `env:"APIPAY_DATABASE_URL,required,notEmpty"`
	// HTTPAddr serves the API. Loopback by default: who may reach it is the operator's decision.
	HTTPAddr string `env:"APIPAY_HTTP_ADDR" envDefault:"127.0.0.1:8081"`
	// OpsAddr serves health and metrics.
	OpsAddr string `env:"APIPAY_OPS_ADDR" envDefault:"127.0.0.1:8083"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `env:"APIPAY_LOG_LEVEL" envDefault:"info"`
	// Dev permits an issuer, and the console's cookies, without TLS.
	Dev bool `env:"APIPAY_DEV" envDefault:"false"`
	// TokensFile holds static staff tokens; it is read again when it changes.
	TokensFile string `env:"APIPAY_ADMIN_TOKENS_FILE"`
	// OIDCIssuer switches OpenID Connect access tokens on.
	OIDCIssuer string `env:"APIPAY_OIDC_ISSUER"`
	// OIDCAudience must be among a token's audiences.
	OIDCAudience string `env:"APIPAY_OIDC_AUDIENCE"`
	// OIDCRoleClaim carries viewer, support or admin, or a list with one of them.
	OIDCRoleClaim string `env:"APIPAY_OIDC_ROLE_CLAIM" envDefault:"role"`
	// OIDCClientID lets browsers sign in to the console at the issuer, by the authorization code flow with PKCE.
	OIDCClientID string `env:"APIPAY_OIDC_CLIENT_ID"`
	// OIDCClientSecret is the client's, for issuers that ask for one beside PKCE.
	OIDCClientSecret string `env:"APIPAY_OIDC_CLIENT_SECRET"`
	// OIDCRedirectURL is where the issuer sends browsers back to: the console's own address and /sign-in/callback.
	OIDCRedirectURL string `env:"APIPAY_OIDC_REDIRECT_URL"`
	// VisibilityDelay is payment-api's: before it has passed since the lease's end, an outcome cannot be set by hand.
	VisibilityDelay time.Duration `env:"APIPAY_GATEWAY_VISIBILITY_DELAY" envDefault:"60s"`
	// AllowCIDRs are internal addresses that an endpoint's URL may have; http:// is accepted where it is set.
	AllowCIDRs string `env:"APIPAY_WEBHOOK_ALLOW_CIDRS"`
	// AuditRetention is how long audit entries are kept: 400 days; at least 30 days.
	AuditRetention time.Duration `env:"APIPAY_RETENTION_AUDIT" envDefault:"9600h"`
}

// Validate finds settings that cannot be used.
func (c Config) Validate() error {
	if c.TokensFile == "" && c.OIDCIssuer == "" {
		return errors.New("nobody could sign in: set APIPAY_ADMIN_TOKENS_FILE or APIPAY_OIDC_ISSUER")
	}
	if c.VisibilityDelay < 0 || c.VisibilityDelay > 24*time.Hour {
		return errors.New("APIPAY_GATEWAY_VISIBILITY_DELAY must be from 0s to 24h")
	}
	if c.AuditRetention < 30*24*time.Hour {
		return errors.New("APIPAY_RETENTION_AUDIT must be at least 720h (30 days)")
	}
	if _, err := webhook.ParsePolicy(c.AllowCIDRs); err != nil {
		return fmt.Errorf("APIPAY_WEBHOOK_ALLOW_CIDRS: %w", err)
	}
	return c.validateOIDC()
}

func (c Config) validateOIDC() error {
	if c.OIDCIssuer == "" {
		if c.OIDCAudience != "" {
			return errors.New("APIPAY_OIDC_ISSUER is needed with APIPAY_OIDC_AUDIENCE")
		}
		if c.OIDCClientID != "" {
			return errors.New("APIPAY_OIDC_ISSUER is needed with APIPAY_OIDC_CLIENT_ID")
		}
		return nil
	}
	issuer, err := url.Parse(c.OIDCIssuer)
	if err != nil || issuer.Host == "" || issuer.User != nil || (issuer.Scheme != "https" && issuer.Scheme != "http") {
		return errors.New("APIPAY_OIDC_ISSUER must be an https:// URL")
	}
	if issuer.Scheme != "https" && !c.Dev {
		return errors.New("APIPAY_OIDC_ISSUER must be an https:// URL, unless APIPAY_DEV is set")
	}
	if c.OIDCAudience == "" {
		return errors.New("APIPAY_OIDC_AUDIENCE is needed with APIPAY_OIDC_ISSUER: without it every token of the issuer would open this API")
	}
	if c.OIDCRoleClaim == "" {
		return errors.New("APIPAY_OIDC_ROLE_CLAIM must not be empty")
	}
	return c.validateSignIn()
}

func (c Config) validateSignIn() error {
	if c.OIDCClientID == "" {
		return nil
	}
	back, err := url.Parse(c.OIDCRedirectURL)
	if err != nil || back.Host == "" || back.User != nil || back.Path != console.CallbackPath || back.RawQuery != "" ||
		(back.Scheme != "https" && back.Scheme != "http") {
		return errors.New("APIPAY_OIDC_REDIRECT_URL must be the console's https:// address and " + console.CallbackPath)
	}
	if back.Scheme != "https" && !c.Dev {
		return errors.New("APIPAY_OIDC_REDIRECT_URL must be an https:// URL, unless APIPAY_DEV is set")
	}
	return nil
}
