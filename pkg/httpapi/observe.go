package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	keyAttrs = "httpapi.log_attrs"

	scopeName = "apipay.io/hub/pkg/httpapi"

	// unmatchedRoute stands for paths that strangers chose, in logs and spans.
	unmatchedRoute = "unmatched"
)

// AddLogAttrs adds attributes to the request's one log line. Never add
// secrets, query strings or what a client wrote freely.
func AddLogAttrs(c echo.Context, attrs ...slog.Attr) {
	have, _ := c.Get(keyAttrs).([]slog.Attr)
	c.Set(keyAttrs, append(have, attrs...))
}

// SetTenant names the tenant and mode in the request's log line.
func SetTenant(c echo.Context, tenant string, livemode bool) {
	AddLogAttrs(c, slog.String("tenant", tenant), slog.Bool("livemode", livemode))
}

// logMiddleware writes the wide line http.request, once, after the answer. A
// cause is logged here and nowhere else.
func logMiddleware(logger *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := time.Now()
			if err := next(c); err != nil {
				c.Error(err) // answer now, so that the line has the real status
			}
			status := c.Response().Status
			attrs := []slog.Attr{
				slog.String("method", method(c.Request())),
				slog.String("route", route(c)),
				slog.Int("status", status),
				slog.Float64("duration_ms", float64(time.Since(start).Microseconds())/1000),
				slog.String("request_id", RequestID(c.Request().Context())),
			}
			if extra, ok := c.Get(keyAttrs).([]slog.Attr); ok {
				attrs = append(attrs, extra...)
			}
			if p, ok := c.Get(keyProblem).(*Problem); ok {
				attrs = append(attrs, slog.String("code", string(p.Code)))
			}
			level := slog.LevelInfo
			// A client's mistake is told by its code; its text is not repeated.
			if cause, ok := c.Get(keyCause).(error); ok && status >= http.StatusInternalServerError {
				level = slog.LevelError
				if errors.Is(c.Request().Context().Err(), context.Canceled) && errors.Is(cause, context.Canceled) {
					level = slog.LevelInfo // the client went away: no fault of ours
				}
				attrs = append(attrs, slog.String("error", cause.Error()))
				var pe *panicError
				if errors.As(cause, &pe) {
					attrs = append(attrs, slog.String("stack", string(pe.stack)))
				}
			}
			logger.LogAttrs(context.WithoutCancel(c.Request().Context()), level, "http.request", attrs...)
			return nil
		}
	}
}

// traceMiddleware continues the caller's trace. It is not otelecho, because
// that records the client's claimed address and error texts on the span.
func traceMiddleware(o Options) echo.MiddlewareFunc {
	tracer := o.TracerProvider.Tracer(scopeName)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			ctx := o.Propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
			ctx, span := tracer.Start(ctx, method(r)+" "+route(c),
				trace.WithSpanKind(trace.SpanKindServer),
				trace.WithAttributes(
					attribute.String("http.request.method", method(r)),
					attribute.String("http.route", route(c)),
					attribute.String("request_id", RequestID(ctx)),
				))
			defer span.End()
			// The outer middlewares keep this request: their log line then
			// carries the trace id.
			c.SetRequest(r.WithContext(ctx))
			if err := next(c); err != nil {
				c.Error(err)
			}
			status := c.Response().Status
			span.SetAttributes(attribute.Int("http.response.status_code", status))
			if status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			return nil
		}
	}
}

// panicError is a recovered panic with the stack of the place.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func recoverMiddleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				panic(v)
			}
			err = &panicError{value: v, stack: debug.Stack()}
		}()
		return next(c)
	}
}

// route is the template of the route, never the path itself.
func route(c echo.Context) string {
	if p := c.Path(); p != "" {
		return p
	}
	return unmatchedRoute
}

// method bounds what a stranger can write into names and logs.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	default:
		return "_OTHER"
	}
}
