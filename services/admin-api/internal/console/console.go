// Package console is the support console: pages for the browser, over the same API that programs use. Each page asks the
// API within this process as the member of staff who signed in, so what they may see, do and leave in the audit log is
// decided in one place.
package console

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/admin-api/internal/staff"
)

// Options of [New].
type Options struct {
	// API answers /admin/v1.
	API   http.Handler
	Staff *staff.Directory
	// Key seals the cookies; every replica has the same.
	Key []byte
	// Dev permits cookies without Secure: the development stack has no TLS.
	Dev    bool
	Logger *slog.Logger
}

// Console serves the pages. It keeps no state: sessions are in sealed cookies.
type Console struct {
	api    http.Handler
	staff  *staff.Directory
	seal   *seal
	dev    bool
	logger *slog.Logger
	pages  *pages
	origin *http.CrossOriginProtection
	clock  func() time.Time
}

// CallbackPath is where the issuer sends browsers back to.
const CallbackPath = "/sign-in/callback"

// policy lets nothing run or load that this server did not send as a file, whatever a page may come to contain.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// New makes the console's handler.
func New(o Options) (http.Handler, error) {
	sealed, err := newSeal(o.Key)
	if err != nil {
		return nil, err
	}
	pages, err := loadPages()
	if err != nil {
		return nil, err
	}
	c := &Console{
		api: o.API, staff: o.Staff, seal: sealed, dev: o.Dev, logger: o.Logger, pages: pages,
		origin: http.NewCrossOriginProtection(), clock: time.Now,
	}
	e := httpapi.NewEcho(httpapi.Options{Logger: o.Logger})
	e.IPExtractor = echo.ExtractIPDirect()
	e.GET("/assets/*", c.asset)
	e.GET("/", c.open(c.home))
	e.GET("/sign-in", c.open(c.signInPage))
	e.POST("/sign-in", c.open(c.signInByToken))
	e.GET("/sign-in/issuer", c.open(c.signInAtIssuer))
	e.GET(CallbackPath, c.open(c.signInCallback))
	e.POST("/sign-out", c.open(c.signOut))
	e.GET("/docs", c.open(c.docs))
	e.GET("/openapi.json", c.open(c.openAPI))
	for _, r := range []struct {
		method, path string
		serve        func(*visit) error
	}{
		{http.MethodGet, "/find", c.find},
		{http.MethodGet, "/deliveries", c.deliveries},
		{http.MethodGet, "/deliveries/:id", c.delivery},
		{http.MethodPost, "/deliveries/:id/retry", c.retry},
		{http.MethodGet, "/events/:id", c.event},
		{http.MethodGet, "/endpoints", c.endpoints},
		{http.MethodGet, "/endpoints/:id", c.endpoint},
		{http.MethodPost, "/endpoints/:id/status", c.setEndpointStatus},
		{http.MethodGet, "/recoveries", c.recoveries},
		{http.MethodGet, "/recoveries/new", c.newRecovery},
		{http.MethodPost, "/recoveries", c.createRecovery},
		{http.MethodGet, "/recoveries/:id", c.recovery},
		{http.MethodPost, "/recoveries/:id/cancel", c.cancelRecovery},
		{http.MethodGet, "/outbox", c.outbox},
		{http.MethodPost, "/outbox/:id/replay", c.replayParked},
		{http.MethodPost, "/outbox/:id/discard", c.discardParked},
		{http.MethodGet, "/quarantine", c.quarantine},
		{http.MethodPost, "/quarantine/:id/replay", c.replayQuarantined},
		{http.MethodGet, "/payments", c.payments},
		{http.MethodGet, "/payments/:id", c.payment},
		{http.MethodPost, "/payments/attempts/:id/resolve", c.resolve},
		{http.MethodGet, "/audit", c.audit},
	} {
		e.Add(r.method, r.path, c.guard(r.serve))
	}
	e.RouteNotFound("/*", c.open(c.notFound))
	return e, nil
}

// visit is one request to the console.
type visit struct {
	echo.Context
	console *Console
	// session is nil before the sign-in.
	session *session
	who     staff.Identity
}

// open serves a page that needs no session.
func (c *Console) open(serve func(*visit) error) echo.HandlerFunc {
	return func(ec echo.Context) error {
		v := c.visit(ec)
		if err := c.origin.Check(ec.Request()); err != nil {
			return v.fail(http.StatusForbidden, "This request came from another site.", "")
		}
		return v.answer(serve(v))
	}
}

// guard serves a page to those who have signed in. Writes carry the session's token, which no other site can read.
func (c *Console) guard(serve func(*visit) error) echo.HandlerFunc {
	return c.open(func(v *visit) error {
		if v.session == nil {
			return v.toSignIn()
		}
		httpapi.AddLogAttrs(v.Context, slog.String("actor", v.who.Name), slog.String("role", string(v.who.Role)))
		if v.Request().Method == http.MethodPost && !v.session.hasToken(v.form("csrf")) {
			return v.fail(http.StatusForbidden, "The page is too old, or the request did not come from it. Load it again.", "")
		}
		return serve(v)
	})
}

func (c *Console) visit(ec echo.Context) *visit {
	v := &visit{Context: ec, console: c}
	h := ec.Response().Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if v.isSecure() {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if s, ok := c.readSession(v); ok {
		v.session, v.who = s, s.who
	}
	return v
}

// answer shows what the API said to a request that failed, and tells the log of everything else.
func (v *visit) answer(err error) error {
	if err == nil {
		return nil
	}
	if problem, ok := errors.AsType[*problem](err); ok {
		return v.fail(problem.Status, problem.Detail, problem.RequestID)
	}
	v.console.logger.ErrorContext(v.Request().Context(), "console.failed", "error", err.Error(),
		"request_id", httpapi.RequestID(v.Request().Context()))
	return v.fail(http.StatusInternalServerError, "Something failed on our side.", httpapi.RequestID(v.Request().Context()))
}

type failure struct {
	Status    int
	Title     string
	Detail    string
	RequestID string
}

func (v *visit) fail(status int, detail, requestID string) error {
	titles := map[int]string{
		http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed", http.StatusServiceUnavailable: "Not available right now",
		http.StatusConflict: "That cannot be done now", http.StatusInternalServerError: "Something went wrong",
	}
	title := titles[status]
	if title == "" {
		title = "The request is not right"
	}
	return v.render(status, "failure", title, failure{Status: status, Title: title, Detail: detail, RequestID: requestID})
}

func (c *Console) home(v *visit) error {
	if v.session == nil {
		return c.signInPage(v)
	}
	return v.Redirect(http.StatusSeeOther, "/deliveries")
}

// notFound answers people by a page and programs by a problem.
func (c *Console) notFound(v *visit) error {
	if !strings.Contains(v.Request().Header.Get("Accept"), "text/html") {
		h := v.Response().Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		v.Error(echo.ErrNotFound)
		return nil
	}
	return v.fail(http.StatusNotFound, "There is no such page.", "")
}
