// Package staff tells who a bearer token belongs to: a static token of a file, or an access token of an OpenID
// Connect issuer. It decides the role and the tenants; what a role may do is decided by the API's routes.
package staff

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/pkg/postgres"
)

// Role is what a member of staff may do; each includes the ones before it.
type Role string

// The roles: a viewer reads, support also sends again, an admin does everything.
const (
	Viewer  Role = "viewer"
	Support Role = "support"
	Admin   Role = "admin"
)

var rank = map[Role]int{Viewer: 1, Support: 2, Admin: 3}

// May says whether the role includes the other one.
func (r Role) May(needed Role) bool { return rank[r] > 0 && rank[r] >= rank[needed] }

// Identity is an authenticated member of staff.
type Identity struct {
	// Name is the static token's name, or "oidc:" and the token's subject.
	Name string
	Role Role
	// Tenants confine the member; nil is every tenant, empty is none.
	Tenants []uuid.UUID
}

// Scope is the value of app.admin_scope, from which row level security decides what exists.
func (i Identity) Scope() string {
	if i.Tenants == nil {
		return postgres.AllTenants
	}
	texts := make([]string, len(i.Tenants))
	for n, tenant := range i.Tenants {
		texts[n] = tenant.String()
	}
	return strings.Join(texts, ",")
}

// IsConfined says whether the member sees only some tenants.
func (i Identity) IsConfined() bool { return i.Tenants != nil }

// Why a token is not accepted.
var (
	// ErrUnknownToken is returned for a token that is nobody's: unknown, malformed, expired or for another audience.
	ErrUnknownToken = errors.New("the token is unknown, malformed or expired")
	// ErrNoRole is returned for a genuine token of somebody who has no role here, or whose tenants cannot be read.
	ErrNoRole = errors.New("the token carries no role of this API")
	// ErrIssuerUnavailable is returned while the issuer's keys cannot be had.
	ErrIssuerUnavailable = errors.New("the token's issuer cannot be reached")
)

// Options of [New].
type Options struct {
	// TokensFile holds static tokens; empty for none.
	TokensFile string
	// Issuer, Audience and RoleClaim are those of OpenID Connect; an empty Issuer switches it off.
	Issuer, Audience, RoleClaim string
	// SignIn lets browsers sign in at the issuer.
	SignIn SignIn
	Logger *slog.Logger
	// Loop ticks while the file is watched.
	Loop *ops.Loop
}

// Directory knows the staff. Its methods may be called concurrently.
type Directory struct {
	static *tokensFile
	issuer *issuer
	loop   *ops.Loop
}

// New reads the tokens file, and fails with one line that says what is wrong with it. The issuer is not contacted
// before the first token that needs it, so that its outage does not keep this service from starting.
func New(o Options) (*Directory, error) {
	d := &Directory{loop: o.Loop}
	if o.TokensFile != "" {
		static, err := openTokensFile(o.TokensFile, o.Logger)
		if err != nil {
			return nil, err
		}
		d.static = static
	}
	if o.Issuer != "" {
		d.issuer = newIssuer(o.Issuer, o.Audience, o.RoleClaim, o.SignIn)
	}
	if d.issuer == nil && (d.static == nil || d.static.isEmpty()) {
		return nil, errors.New("APIPAY_ADMIN_TOKENS_FILE holds no token and APIPAY_OIDC_ISSUER is not set: nobody could sign in")
	}
	return d, nil
}

// Authenticate tells whose token it is, or fails with one of this package's errors.
func (d *Directory) Authenticate(ctx context.Context, token string) (Identity, error) {
	if token == "" || len(token) > maxTokenBytes {
		return Identity{}, ErrUnknownToken
	}
	if d.static != nil {
		// Found by its hash: how long the look-up takes tells nothing about the tokens.
		if who, ok := d.static.find(sha256.Sum256([]byte(token))); ok {
			return who, nil
		}
	}
	if d.issuer == nil {
		return Identity{}, ErrUnknownToken
	}
	return d.issuer.authenticate(ctx, token)
}

const maxTokenBytes = 16 << 10

// Run watches the tokens file until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	if d.static == nil {
		return watchNothing(ctx, d.loop)
	}
	return d.static.watch(ctx, d.loop)
}

// parseTenant takes tnt_ text or a canonical UUID.
func parseTenant(text string) (uuid.UUID, error) {
	if tenant, err := id.Parse(id.Tenant, text); err == nil {
		return tenant, nil
	}
	tenant, err := uuid.Parse(text)
	// One text per value: braces, urn: and bare digits are refused.
	if err != nil || tenant.String() != strings.ToLower(text) {
		return uuid.Nil, id.ErrInvalid
	}
	return tenant, nil
}
