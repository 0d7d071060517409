package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"apipay.io/hub/pkg/ops"
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
	// MeterProvider measures the requests; default the global one.
	MeterProvider metric.MeterProvider
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
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
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
	e.HTTPErrorHandler = errorHandler(o, newRoutes(e))
	e.JSONSerializer = jsonSerializer{}
	// Outermost first. Recovery is innermost, so that a panic has its answer,
	// span and log line like any other error.
	e.Use(
		requestIDMiddleware,
		defaultsMiddleware(o),
		metricMiddleware(o.MeterProvider),
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
)

// UnreadyFirst is how long the port still accepts after the end was asked for, so
// that a balancer which probes /readyz each second looks elsewhere before it closes.
// A process's drain is to fit into what this leaves of the 15 s of SIGTERM.
const UnreadyFirst = 2 * time.Second

// Serve serves h on ln, which it closes, until [UnreadyFirst] after ctx ended; then
// it stops accepting and lets requests in flight finish for at most drain. Their
// contexts do not end with ctx: a drained request is a finished one. From the end
// of ctx on, each answer closes its connection: a client that keeps one open, behind
// a balancer of connections, would else send its next request into the closing.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, drain time.Duration) error {
	srv := &http.Server{
		Handler:           closing(ctx, h),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		// OPTIONS * is answered like every other route that there is not.
		DisableGeneralOptionsHandler: true,
	}
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(UnreadyFirst, stop) })()
	return ops.ServeHTTP(serveCtx, srv, problemListener{ln}, drain)
}

func closing(ctx context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
