package auth

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/singleflight"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
)

const (
	// remembered is how old the answer of the database about a key may be. Half of the second within which a revoked
	// key must fail; the other half is for the look-up itself.
	remembered = 500 * time.Millisecond
	// maxRemembered bounds the memory, about 300 bytes per key.
	maxRemembered = 10_000
	lookUpTimeout = 5 * time.Second
)

// Authenticator checks API keys. Make one with [New].
type Authenticator struct {
	pool    *pgxpool.Pool
	cache   cache
	lookUps singleflight.Group
	used    chan use
}

// New makes an Authenticator on a pool of the role apipay_app. [Authenticator.RunLastUsed] must run beside it.
func New(pool *pgxpool.Pool) *Authenticator {
	return &Authenticator{
		pool:  pool,
		cache: cache{keys: newLRU()},
		used:  make(chan use, 1024),
	}
}

// Middleware authenticates every request, then takes a token of its tenant and mode from the limiter: before anything of
// the request is parsed.
func (a *Authenticator) Middleware(limiter *httpapi.RateLimiter) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			principal, err := a.authenticate(c.Request().Context(), c.Request().Header)
			if err != nil {
				return err
			}
			WithPrincipal(c, principal)
			tenant := id.Format(id.Tenant, principal.Scope.TenantID)
			httpapi.SetTenant(c, tenant, principal.Scope.Livemode)
			if err := limiter.Take(c.Response().Header(), tenant, principal.Scope.Livemode); err != nil {
				return err
			}
			return next(c)
		}
	}
}

func (a *Authenticator) authenticate(ctx context.Context, h http.Header) (Principal, error) {
	text, ok := bearer(h)
	if !ok {
		return Principal{}, httpapi.New(httpapi.CodeAuthenticationFailed, "Send one header Authorization: Bearer with an API key.")
	}
	livemode, hash, err := apikey.Parse(text)
	if err != nil {
		return Principal{}, refused()
	}
	if key, ok := a.cache.find(hash, time.Now()); ok {
		return key.principal, nil
	}
	// Requests of one key that arrive together ask once. The question outlives the request that happened to be first.
	outcome, err, _ := a.lookUps.Do(string(hash[:]), func() (any, error) {
		lookUpCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
		defer cancel()
		return a.lookUp(lookUpCtx, hash)
	})
	if err != nil {
		return Principal{}, err
	}
	key := outcome.(known)
	// An unknown, expired or revoked key and one of the other mode are told apart by nobody.
	if !key.usable || key.principal.Scope.Livemode != livemode {
		return Principal{}, refused()
	}
	a.cache.remember(hash, key)
	return key.principal, nil
}

func refused() error {
	return httpapi.New(httpapi.CodeAuthenticationFailed, "The API key is not valid.").
		WithHeader("WWW-Authenticate", `Bearer realm="apipay", error="invalid_token"`)
}

// bearer reads the one Authorization header (RFC 6750 §2.1). Of two, Go would silently take the first.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.Trim(text, " "), true
}

func newLRU() *simplelru.LRU[[32]byte, known] {
	lru, err := simplelru.NewLRU[[32]byte, known](maxRemembered, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return lru
}
