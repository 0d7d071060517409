package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Telemetry is a process's registry of metrics; logs and traces go through slog's and otel's globals, which
// [StartTelemetry] sets.
type Telemetry struct {
	Registry *prometheus.Registry
	stop     []func(context.Context) error
}

// StartTelemetry sets up metrics (Prometheus on the ops port) and, where OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, traces by OTLP over HTTP. Trace context is passed on in either case.
func StartTelemetry(ctx context.Context, service string) (*Telemetry, error) {
	res, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service)))
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describing the process for telemetry: %w", err)
	}
	t := &Telemetry{Registry: prometheus.NewRegistry()}
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.Registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("starting metrics: %w", err)
	}
	meters := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithResource(res))
	otel.SetMeterProvider(meters)
	t.stop = append(t.stop, meters.Shutdown)
	otel.SetTracerProvider(passingTracers{})
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		spans, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("starting traces: %w", err)
		}
		tracers := trace.NewTracerProvider(trace.WithResource(res), trace.WithBatcher(spans))
		otel.SetTracerProvider(tracers)
		t.stop = append(t.stop, tracers.Shutdown)
	}
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Debug("telemetry.error", "error", err.Error()) }))
	return t, nil
}

// Stop flushes what is pending.
func (t *Telemetry) Stop(ctx context.Context) {
	for _, stop := range t.stop {
		if err := stop(ctx); err != nil {
			slog.DebugContext(ctx, "telemetry.stopping", "error", err.Error())
		}
	}
}

// NewLogger writes JSON lines to w, each with the service's name and, inside a span, its trace and span id.
func NewLogger(w io.Writer, service, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("APIPAY_LOG_LEVEL must be debug, info, warn or error")
	}
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})
	return slog.New(traceHandler{handler}).With("service", service), nil
}

// traceHandler adds the ids of the span in the context.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, record slog.Record) error {
	if span := oteltrace.SpanContextFromContext(ctx); span.IsValid() {
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}

// oneLine keeps an error on one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
