package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/admin-api/internal/staff"
)

// call is one authenticated request.
type call struct {
	echo.Context
	who    staff.Identity
	action string
}

func (c *call) ctx() context.Context { return c.Request().Context() }

// pathID reads an id of the path. One that does not parse is no object: 404.
func (c *call) pathID(name string, prefix id.Prefix) (uuid.UUID, error) {
	u, err := id.Parse(prefix, c.Param(name))
	if err != nil {
		return uuid.Nil, notFound()
	}
	return u, nil
}

func notFound() *httpapi.Problem {
	return httpapi.New(httpapi.CodeNotFound, "There is no such object.")
}

// guard authenticates, checks the role and tells the audit log of writes that were refused.
func (a *API) guard(r route) echo.HandlerFunc {
	return func(ec echo.Context) error {
		request := ec.Request()
		ctx, cancel := context.WithTimeout(request.Context(), requestTimeout)
		ec.SetRequest(request.WithContext(ctx))
		defer func() {
			cancel()
			ec.SetRequest(request) // what comes after the handler is not bounded by it
		}()
		who, err := a.authenticate(ec)
		if err != nil {
			return err
		}
		httpapi.AddLogAttrs(ec, slog.String("actor", who.Name), slog.String("role", string(who.Role)))
		c := &call{Context: ec, who: who, action: r.action}
		if !who.Role.May(r.role) {
			err = httpapi.New(httpapi.CodeForbidden, "The role "+string(who.Role)+" does not allow this.")
		} else {
			err = r.serve(a, c)
		}
		if r.action != "" {
			a.tellRefusal(c, err)
		}
		return err
	}
}

type identityKey struct{}

// As marks requests that this process makes for somebody who has signed in already. No request from outside has it.
func As(ctx context.Context, who staff.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}

func (a *API) authenticate(c echo.Context) (staff.Identity, error) {
	if who, ok := c.Request().Context().Value(identityKey{}).(staff.Identity); ok {
		return who, nil
	}
	token, ok := bearer(c.Request().Header)
	if !ok {
		return staff.Identity{}, httpapi.New(httpapi.CodeAuthenticationFailed, "Send one Authorization header: Bearer and a staff token.")
	}
	who, err := a.staff.Authenticate(c.Request().Context(), token)
	switch {
	case errors.Is(err, staff.ErrUnknownToken):
		return who, httpapi.New(httpapi.CodeAuthenticationFailed, "The token is unknown, malformed or expired.").
			WithHeader("WWW-Authenticate", `Bearer realm="apipay", error="invalid_token"`)
	case errors.Is(err, staff.ErrNoRole):
		return who, httpapi.New(httpapi.CodeForbidden, "The token carries no role of this API, or tenants that cannot be read.")
	case errors.Is(err, staff.ErrIssuerUnavailable):
		return who, httpapi.New(httpapi.CodeServiceUnavailable, "The token's issuer cannot be reached.").WithCause(err)
	}
	return who, err
}

func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t") {
		return "", false
	}
	return token, true
}

// tellRefusal writes a refused write into the log and, as the platform's business, into the audit log: somebody who
// tries what is not theirs should be seen. To a confined member of staff another tenant's object is a 404, so that
// one is told too.
func (a *API) tellRefusal(c *call, cause error) {
	problem, ok := errors.AsType[*httpapi.Problem](cause)
	if !ok && cause != nil {
		problem = problemOf(cause)
	}
	if problem == nil || (problem.Code != httpapi.CodeForbidden && problem.Code != httpapi.CodeNotFound) {
		return
	}
	target := clip(c.Request().URL.EscapedPath(), 200)
	ctx := context.WithoutCancel(c.ctx())
	a.logger.WarnContext(ctx, "write.refused", "actor", c.who.Name, "role", string(c.who.Role),
		"action", c.action, "target", target, "code", string(problem.Code), "request_id", httpapi.RequestID(ctx))
	entry := c.audit(outbox.Platform, false, target)
	entry.Changes = map[string]any{"refused": string(problem.Code)}
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	err := postgres.InSupport(ctx, a.pool, outbox.Platform.String(), func(tx postgres.Tx) error {
		return outbox.Audit(ctx, tx, entry)
	})
	if err != nil {
		a.logger.ErrorContext(ctx, "audit.lost", "action", c.action, "error", err.Error())
	}
}

// audit is the entry of this call; the caller adds what changed.
func (c *call) audit(tenant uuid.UUID, livemode bool, target string) outbox.AuditEntry {
	return outbox.AuditEntry{
		TenantID:  tenant,
		Livemode:  livemode,
		Actor:     c.who.Name,
		Role:      string(c.who.Role),
		Action:    c.action,
		Target:    target,
		RequestID: httpapi.RequestID(c.ctx()),
		IP:        c.RealIP(),
	}
}

// clip bounds a text to most bytes, whole code points only.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
