package staff

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"golang.org/x/oauth2"
)

const (
	issuerTimeout = 5 * time.Second
	// issuerCooldown keeps an issuer that is away from being asked once per request.
	issuerCooldown = 2 * time.Second
	maxSubject     = 255
)

// algorithms are asymmetric only, whatever the issuer announces.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// issuer verifies access tokens that are JWTs by the issuer's published keys.
type issuer struct {
	url, audience, roleClaim string
	signIn                   SignIn
	client                   *http.Client
	// Clock is time.Now unless a test sets it.
	Clock func() time.Time

	mu       sync.Mutex
	found    *discovered
	failedAt time.Time
}

// discovered is what the issuer tells of itself.
type discovered struct {
	endpoint oauth2.Endpoint
	// accessTokens are those for this API, idTokens those of the console's sign-in.
	accessTokens, idTokens *oidc.IDTokenVerifier
}

func newIssuer(url, audience, roleClaim string, signIn SignIn) *issuer {
	return &issuer{
		url: url, audience: audience, roleClaim: roleClaim, signIn: signIn,
		client: &http.Client{Timeout: issuerTimeout},
		Clock:  time.Now,
	}
}

func (i *issuer) authenticate(ctx context.Context, token string) (Identity, error) {
	// What is no JWT is nobody's token, also while the issuer is away.
	if strings.Count(token, ".") != 2 {
		return Identity{}, ErrUnknownToken
	}
	found, err := i.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	outage := &keyOutage{}
	verified, err := found.accessTokens.Verify(context.WithValue(ctx, outageKey{}, outage), token)
	if outage.happened {
		return Identity{}, ErrIssuerUnavailable
	}
	if err != nil {
		return Identity{}, ErrUnknownToken
	}
	var claims map[string]jsontext.Value
	if err := verified.Claims(&rawClaims{&claims}); err != nil {
		return Identity{}, ErrUnknownToken
	}
	return i.identity(verified.Subject, claims)
}

func (i *issuer) identity(subject string, claims map[string]jsontext.Value) (Identity, error) {
	if subject == "" || len(subject) > maxSubject || !isPrintable(subject) {
		return Identity{}, ErrUnknownToken
	}
	who := Identity{Name: "oidc:" + subject, Role: highestRole(claims[i.roleClaim])}
	if who.Role == "" {
		return Identity{}, ErrNoRole
	}
	raw, confined := claims["tenants"]
	if !confined {
		return who, nil
	}
	// Whatever cannot be read confines to nothing, and never to everything.
	var texts []string
	if raw.Kind() != '[' || json.Unmarshal(raw, &texts) != nil {
		return Identity{}, ErrNoRole
	}
	who.Tenants = make([]uuid.UUID, 0, len(texts))
	for _, text := range texts {
		tenant, err := parseTenant(text)
		if err != nil {
			return Identity{}, ErrNoRole
		}
		who.Tenants = append(who.Tenants, tenant)
	}
	return who, nil
}

// highestRole takes one text or a list of texts, of which those that are no roles of this API are others' business.
func highestRole(raw jsontext.Value) Role {
	var one Role
	if json.Unmarshal(raw, &one) == nil {
		if rank[one] > 0 {
			return one
		}
		return ""
	}
	var many []Role
	if json.Unmarshal(raw, &many) != nil {
		return ""
	}
	var highest Role
	for _, role := range many {
		if rank[role] > rank[highest] {
			highest = role
		}
	}
	return highest
}

// discover asks the issuer for its keys' address, once it succeeded never again.
func (i *issuer) discover(ctx context.Context) (*discovered, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.found != nil {
		return i.found, nil
	}
	if i.Clock().Sub(i.failedAt) < issuerCooldown {
		return nil, ErrIssuerUnavailable
	}
	// Detached: the keys outlive the request that asked for them first.
	clientCtx := oidc.ClientContext(context.WithoutCancel(ctx), i.client)
	provider, err := oidc.NewProvider(clientCtx, i.url)
	if err != nil {
		i.failedAt = i.Clock()
		return nil, errors.Join(ErrIssuerUnavailable, err)
	}
	var metadata struct {
		JWKSURI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&metadata); err != nil || metadata.JWKSURI == "" {
		i.failedAt = i.Clock()
		return nil, ErrIssuerUnavailable
	}
	keys := watchedKeys{oidc.NewRemoteKeySet(clientCtx, metadata.JWKSURI)}
	verifier := func(audience string) *oidc.IDTokenVerifier {
		return oidc.NewVerifier(i.url, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: algorithms, Now: i.Clock})
	}
	i.found = &discovered{endpoint: provider.Endpoint(), accessTokens: verifier(i.audience), idTokens: verifier(i.signIn.ClientID)}
	return i.found, nil
}

// watchedKeys tells an issuer that could not be asked from a signature that is wrong: the library reports both as
// one error without a type.
type watchedKeys struct{ oidc.KeySet }

type outageKey struct{}

type keyOutage struct{ happened bool }

func (k watchedKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	if err != nil && strings.HasPrefix(err.Error(), "fetching keys") {
		if outage, ok := ctx.Value(outageKey{}).(*keyOutage); ok {
			outage.happened = true
		}
	}
	return payload, err
}

// rawClaims takes the claims as they are: the library decodes by encoding/json, which calls UnmarshalJSON.
type rawClaims struct{ target *map[string]jsontext.Value }

func (c *rawClaims) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, c.target) }
