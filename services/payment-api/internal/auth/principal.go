// Package auth answers who calls: it turns the API key of a request into a tenant, a mode and scopes. It remembers a key
// for half a second, so that a revoked one fails within a second on every replica.
package auth

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

const contextKey = "auth.principal"

// Principal is the API key that a request was made with.
type Principal struct {
	Scope  postgres.Scope
	KeyID  uuid.UUID
	Scopes []string
}

// Actor is the principal's name in the audit log.
func (p Principal) Actor() string { return id.Format(id.APIKey, p.KeyID) }

// Has says whether the key was made with the scope. No scope includes another one.
func (p Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

// FromContext is the principal of an authenticated request. On a route that nobody guarded it panics, which is a 500 and
// not a request without a tenant.
func FromContext(c echo.Context) Principal {
	p, ok := c.Get(contextKey).(Principal)
	if !ok {
		panic("auth: the route is not behind the authentication")
	}
	return p
}

// WithPrincipal makes c an authenticated request.
func WithPrincipal(c echo.Context, p Principal) { c.Set(contextKey, p) }

// Require refuses keys without the scope: 403 insufficient_scope.
func Require(scope string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !FromContext(c).Has(scope) {
				// RFC 6750 §3.1
				return httpapi.New(httpapi.CodeInsufficientScope, "The API key needs the scope "+scope+".").
					WithHeader("WWW-Authenticate", fmt.Sprintf(`Bearer realm="apipay", error="insufficient_scope", scope=%q`, scope))
			}
			return next(c)
		}
	}
}
