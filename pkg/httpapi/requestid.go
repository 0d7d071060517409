package httpapi

import (
	"context"

	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/id"
)

// HeaderRequestID names a request in answers, logs, events and problems.
const HeaderRequestID = "X-Request-Id"

const maxRequestID = 128

type requestIDKey struct{}

// RequestID returns the id of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	s, _ := ctx.Value(requestIDKey{}).(string)
	return s
}

// WithRequestID returns a context of the request id, for work that goes on
// after its request, and for tests.
func WithRequestID(ctx context.Context, requestID string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, requestID)
}

// requestIDMiddleware gives every request an id and every answer its header.
// A client's own id is taken only if it is sent once and is harmless in logs
// and headers; otherwise it is ignored, not refused.
func requestIDMiddleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		var requestID string
		if sent := r.Header.Values(HeaderRequestID); len(sent) == 1 && isRequestID(sent[0]) {
			requestID = sent[0]
		} else {
			requestID = id.Format(id.Request, id.New())
		}
		c.Response().Header().Set(HeaderRequestID, requestID)
		c.SetRequest(r.WithContext(WithRequestID(r.Context(), requestID)))
		return next(c)
	}
}

func isRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
