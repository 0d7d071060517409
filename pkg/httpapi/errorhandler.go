package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
)

const (
	keyCause   = "httpapi.cause"
	keyProblem = "httpapi.problem"
	// keyBodyRead: the body was read to its end.
	keyBodyRead = "httpapi.body_read"
	keyMaxBody  = "httpapi.max_body"
	keyBaseURL  = "httpapi.errors_base_url"

	// maxInstance bounds what an answer repeats of a path that a stranger chose.
	maxInstance = 256
)

// problemOf turns any error into a problem. Order matters: what a handler says
// outright wins over the service's mapping, and that over the generic rules.
func problemOf(err error, mapDomain func(error) *Problem) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if mapDomain != nil {
		if p := mapDomain(err); p != nil {
			if p.cause == nil {
				p = p.WithCause(err)
			}
			return p
		}
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLargeProblem(tooLarge.Limit).WithCause(err)
	}
	if he, ok := errors.AsType[*echo.HTTPError](err); ok {
		return frameworkProblem(he)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Cancelled mostly means that nobody reads the answer any more.
		return New(CodeServiceUnavailable, "The request was not finished in time.").WithCause(err)
	}
	return New(CodeInternalError, "").WithCause(err)
}

// frameworkProblem covers what echo and its middlewares answer themselves.
func frameworkProblem(he *echo.HTTPError) *Problem {
	switch he.Code {
	case http.StatusNotFound:
		return New(CodeNotFound, "There is no such route.")
	case http.StatusMethodNotAllowed:
		return New(CodeMethodNotAllowed, "The route does not have this method.")
	case http.StatusUnauthorized:
		return New(CodeAuthenticationFailed, "")
	case http.StatusForbidden:
		return New(CodeForbidden, "")
	case http.StatusRequestEntityTooLarge:
		return New(CodePayloadTooLarge, "")
	case http.StatusUnsupportedMediaType:
		return New(CodeUnsupportedMediaType, "")
	case http.StatusTooManyRequests:
		return New(CodeRateLimited, "")
	case http.StatusServiceUnavailable:
		return New(CodeServiceUnavailable, "").WithCause(he)
	}
	if he.Code >= 400 && he.Code < 500 {
		return New(CodeInvalidRequest, "The request is not acceptable.").WithCause(he)
	}
	return New(CodeInternalError, "").WithCause(he)
}

// errorHandler answers every error as a problem. It does not log: the cause is
// left in the context for the request's one line.
func errorHandler(o Options, r *routes) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if allow, ok := r.allow(c, err); ok {
			c.Response().Header().Set(echo.HeaderAllow, allow)
			err = echo.ErrMethodNotAllowed
		}
		p := problemOf(err, o.Map)
		if c.Get(keyProblem) == nil {
			c.Set(keyProblem, p)
			c.Set(keyCause, err)
		}
		if c.Response().Committed {
			return
		}
		answerProblem(c, p)
	}
}

// CompleteProblem returns p with the type, request id and instance of this
// request, as it would be answered. Handlers use it to store what they answer.
func CompleteProblem(c echo.Context, p *Problem) *Problem {
	base, _ := c.Get(keyBaseURL).(string)
	instance := c.Request().URL.EscapedPath()
	if len(instance) > maxInstance {
		instance = instance[:maxInstance]
	}
	return p.Complete(base, RequestID(c.Request().Context()), instance)
}

func answerProblem(c echo.Context, p *Problem) {
	p = CompleteProblem(c, p)
	body, err := p.Encode()
	if err != nil {
		// An extension member could not be encoded: our fault, not the client's.
		c.Set(keyCause, errors.Join(err, p))
		p = CompleteProblem(c, New(CodeInternalError, ""))
		if body, err = p.Encode(); err != nil {
			return
		}
	}
	h := c.Response().Header()
	if r := c.Request(); r.ContentLength != 0 && c.Get(keyBodyRead) == nil {
		// net/http would first wait for the rest of a body that nobody wants.
		h.Set(echo.HeaderConnection, "close")
	}
	for name, values := range p.Header {
		h[name] = values
	}
	// net/http drops the body of a HEAD answer and keeps its length. A failed
	// write means that the client is gone.
	_ = c.Blob(p.Status, MediaTypeProblem, body)
}

// jsonSerializer makes c.JSON encode as [EncodeJSON] does.
type jsonSerializer struct{}

func (jsonSerializer) Serialize(c echo.Context, v any, _ string) error {
	b, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	_, err = c.Response().Write(b)
	return err
}

var errLenientDecode = errors.New("httpapi: bodies are decoded by Bind, never by echo")

func (jsonSerializer) Deserialize(echo.Context, any) error { return errLenientDecode }

// JSON answers v. The encoding happens before the status is sent, so that a
// value which cannot be encoded is a 500 and not half an answer.
func JSON(c echo.Context, status int, v any) error {
	b, err := EncodeJSON(v)
	if err != nil {
		return err
	}
	return c.Blob(status, echo.MIMEApplicationJSON, b)
}
