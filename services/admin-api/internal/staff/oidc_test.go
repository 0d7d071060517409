package staff

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
)

const audience = "apipay-admin"

// oidcBundle is a real OpenID Connect server and a directory that trusts it.
type oidcBundle struct {
	server *mockoidc.MockOIDC
	staff  *Directory
}

func setupOIDC(t *testing.T) *oidcBundle {
	t.Helper()
	server, err := mockoidc.Run()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown()) })
	return &oidcBundle{server: server, staff: directoryOf(t, server.Issuer())}
}

func directoryOf(t *testing.T, issuerURL string) *Directory {
	t.Helper()
	d, err := New(Options{
		Issuer: issuerURL, Audience: audience, RoleClaim: "role",
		Logger: slog.New(slog.DiscardHandler), Loop: ops.NewHealth().Loop("tokens", time.Minute),
	})
	require.NoError(t, err)
	d.issuer.client.Transport = &http.Transport{DisableKeepAlives: true}
	return d
}

// claims are those of a good token, changed by edit.
func (b *oidcBundle) claims(edit func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": b.server.Issuer(), "aud": audience, "sub": "00u1", "role": "support",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	if edit != nil {
		edit(c)
	}
	return c
}

func (b *oidcBundle) token(t *testing.T, edit func(jwt.MapClaims)) string {
	t.Helper()
	token, err := b.server.Keypair.SignJWT(b.claims(edit))
	require.NoError(t, err)
	return token
}

func TestOIDC(t *testing.T) {
	t.Parallel()
	b := setupOIDC(t)
	who, err := b.staff.Authenticate(t.Context(), b.token(t, nil))
	require.NoError(t, err)
	require.Equal(t, Identity{Name: "oidc:00u1", Role: Support}, who)

	tenant := id.New()
	who, err = b.staff.Authenticate(t.Context(), b.token(t, func(c jwt.MapClaims) {
		c["role"] = []string{"viewer", "admin", "offline_access"}
		c["aud"] = []string{"other", audience}
		c["tenants"] = []string{id.Format(id.Tenant, tenant)}
	}))
	require.NoError(t, err)
	require.Equal(t, Admin, who.Role)
	require.Equal(t, tenant.String(), who.Scope())

	who, err = b.staff.Authenticate(t.Context(), b.token(t, func(c jwt.MapClaims) { c["tenants"] = []string{} }))
	require.NoError(t, err)
	require.Empty(t, who.Scope(), "an empty list is no tenant, not every tenant")
}

func TestOIDC_Refusals(t *testing.T) {
	t.Parallel()
	b := setupOIDC(t)
	other, err := mockoidc.RandomKeypair(2048)
	require.NoError(t, err)
	foreign, err := other.SignJWT(b.claims(nil))
	require.NoError(t, err)
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, b.claims(nil)).SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	// The published key taken for a shared secret: the classic confusion of algorithms.
	jwks, err := b.server.Keypair.JWKS()
	require.NoError(t, err)
	confused, err := jwt.NewWithClaims(jwt.SigningMethodHS256, b.claims(nil)).SignedString(jwks)
	require.NoError(t, err)
	good := b.token(t, nil)

	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"another audience": {b.token(t, func(c jwt.MapClaims) { c["aud"] = "shop" }), ErrUnknownToken},
		"no audience":      {b.token(t, func(c jwt.MapClaims) { delete(c, "aud") }), ErrUnknownToken},
		"another issuer":   {b.token(t, func(c jwt.MapClaims) { c["iss"] = "https://evil.example" }), ErrUnknownToken},
		"expired":          {b.token(t, func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), ErrUnknownToken},
		"no expiry":        {b.token(t, func(c jwt.MapClaims) { delete(c, "exp") }), ErrUnknownToken},
		"not yet":          {b.token(t, func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }), ErrUnknownToken},
		"no subject":       {b.token(t, func(c jwt.MapClaims) { delete(c, "sub") }), ErrUnknownToken},
		"hostile subject":  {b.token(t, func(c jwt.MapClaims) { c["sub"] = "a\x00b\n" }), ErrUnknownToken},
		"another key":      {foreign, ErrUnknownToken},
		"unsigned":         {unsigned, ErrUnknownToken},
		"confused":         {confused, ErrUnknownToken},
		"cut":              {good[:len(good)-4], ErrUnknownToken},
		"changed":          {changePayload(good), ErrUnknownToken},
		"dots":             {"a.b.c", ErrUnknownToken},
		"no role":          {b.token(t, func(c jwt.MapClaims) { delete(c, "role") }), ErrNoRole},
		"another role":     {b.token(t, func(c jwt.MapClaims) { c["role"] = "root" }), ErrNoRole},
		"tenants as text":  {b.token(t, func(c jwt.MapClaims) { c["tenants"] = "*" }), ErrNoRole},
		"tenants null":     {b.token(t, func(c jwt.MapClaims) { c["tenants"] = nil }), ErrNoRole},
		"tenants of stars": {b.token(t, func(c jwt.MapClaims) { c["tenants"] = []string{"*"} }), ErrNoRole},
	} {
		t.Run(name, func(t *testing.T) {
			who, err := b.staff.Authenticate(t.Context(), test.token)
			require.ErrorIs(t, err, test.want)
			require.Empty(t, who.Role)
		})
	}
}

func changePayload(token string) string {
	parts := strings.Split(token, ".")
	parts[1] = "e30" + parts[1][3:]
	return strings.Join(parts, ".")
}

// An issuer that is away is told as such, and its return needs no restart.
func TestOIDC_IssuerAway(t *testing.T) {
	t.Parallel()
	server, err := mockoidc.NewServer(nil)
	require.NoError(t, err)
	var away atomic.Bool
	away.Store(true)
	require.NoError(t, server.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			next.ServeHTTP(w, r)
		})
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, server.Start(listener, nil))
	t.Cleanup(func() { require.NoError(t, server.Shutdown()) })
	b := &oidcBundle{server: server, staff: directoryOf(t, server.Issuer())}
	d, token := b.staff, b.token(t, nil)
	_, err = d.Authenticate(t.Context(), token)
	require.ErrorIs(t, err, ErrIssuerUnavailable)
	_, err = d.Authenticate(t.Context(), "no-jwt")
	require.ErrorIs(t, err, ErrUnknownToken)

	away.Store(false)
	require.Eventually(t, func() bool {
		who, err := d.Authenticate(t.Context(), token)
		return err == nil && who.Role == Support
	}, 15*time.Second, 50*time.Millisecond)
}
