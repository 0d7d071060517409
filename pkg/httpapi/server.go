package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Options configure [NewEcho]. Every field has a usable zero value.
type Options struct {
	// Logger gets one line per request; default slog.Default().
	Logger *slog.Logger
	// ErrorsBaseURL is the base of the problems' type; default [DefaultErrorsBaseURL].
	ErrorsBaseURL string
	// Map turns a domain error into a problem; nil, or a nil result, leaves it
	// to the generic rules, which end in 500 without detail.
	Map func(error) *Problem
	// MaxBody is the largest body in bytes; default [DefaultMaxBody].
	MaxBody int64
	// TracerProvider makes the server spans; default the global one.
	TracerProvider trace.TracerProvider
	// Propagator reads the caller's trace; default W3C traceparent.
	Propagator propagation.TextMapPropagator
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.ErrorsBaseURL == "" {
		o.ErrorsBaseURL = DefaultErrorsBaseURL
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	return o
}

// NewEcho makes an echo whose every answer, errors of the framework included,
// follows the contract: request id, problem documents, one log line, one span.
// Each GET route also answers HEAD.
func NewEcho(o Options) *echo.Echo {
	o = o.withDefaults()
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = errorHandler(o)
	e.JSONSerializer = jsonSerializer{}
	e.OnAddRouteHandler = func(_ string, route echo.Route, h echo.HandlerFunc, mw []echo.MiddlewareFunc) {
		if route.Method == http.MethodGet {
			e.HEAD(route.Path, h, mw...)
		}
	}
	// Outermost first. Recovery is innermost, so that a panic has its answer,
	// span and log line like any other error.
	e.Use(
		requestIDMiddleware,
		defaultsMiddleware(o),
		logMiddleware(o.Logger),
		traceMiddleware(o),
		recoverMiddleware,
	)
	return e
}

// defaultsMiddleware sets what each request and answer starts with. Handlers
// that serve pages or cacheable answers overwrite the headers.
func defaultsMiddleware(o Options) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set(keyBaseURL, o.ErrorsBaseURL)
			c.Set(keyMaxBody, o.MaxBody)
			h := c.Response().Header()
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("X-Content-Type-Options", "nosniff")
			if r := c.Request(); r.Body != nil && r.Body != http.NoBody {
				// MaxBytesReader also closes the connection after an
				// oversized body, instead of reading it to its end.
				r.Body = http.MaxBytesReader(c.Response().Writer, r.Body, o.MaxBody)
			}
			return next(c)
		}
	}
}

func bodyLimit(c echo.Context) int64 {
	if n, ok := c.Get(keyMaxBody).(int64); ok {
		return n
	}
	return DefaultMaxBody
}

// The limits of a connection. The write timeout exceeds the longest handler:
// a gateway call of 10 s and the transactions around it.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10

	defaultDrain = 10 * time.Second
)

// Server serves a handler until its context ends, then drains.
type Server struct {
	Handler http.Handler
	// Logger gets net/http's own complaints, at debug level: they are about
	// broken clients.
	Logger *slog.Logger
	// Drain bounds how long requests in flight may take after the context
	// ended; default 10 s.
	Drain time.Duration
}

// ListenAndServe listens on addr (host:port) and serves.
func (s *Server) ListenAndServe(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", addr, err)
	}
	return s.Serve(ctx, ln)
}

// Serve serves on ln, which it closes, until ctx ends; then it stops accepting,
// lets requests in flight finish, and returns nil. Their contexts do not end
// with ctx: a drained request is a finished one. What is still running after
// Drain is cut off, and the error says so.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	drain := s.Drain
	if drain <= 0 {
		drain = defaultDrain
	}
	srv := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(problemListener{ln}) }()

	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := srv.Shutdown(drainCtx)
	if err != nil {
		err = fmt.Errorf("draining requests for %s: %w", drain, errors.Join(err, srv.Close()))
	}
	<-served
	return err
}
