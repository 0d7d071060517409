package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
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

// StartTelemetry sets up metrics (Prometheus on the ops port) and, where OTEL_EXPORTER_OTLP_ENDPOINT or the one of a
// signal (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT) is set, traces and metrics by OTLP over
// HTTP. Trace context is passed on in either case. The other standard OTEL_* names (headers, certificates, intervals,
// sampler, resource attributes, OTEL_TRACES_EXPORTER=none, OTEL_SDK_DISABLED) hold.
func StartTelemetry(ctx context.Context, service string) (*Telemetry, error) {
	// The instance first, so that OTEL_RESOURCE_ATTRIBUTES may name it; the service last: dashboards and alerts go by it.
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.instance.id", instance()), attribute.String("service.version", Version())),
		resource.WithFromEnv(), resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", service)))
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describing the process for telemetry: %w", err)
	}
	t := &Telemetry{Registry: prometheus.NewRegistry()}
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Without target_info: a scrape names its target itself.
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.Registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("starting metrics: %w", err)
	}
	readers := []metric.Option{metric.WithReader(exporter), metric.WithResource(res)}
	pushed, err := exports("METRICS")
	if err != nil {
		return nil, err
	}
	if pushed {
		pusher, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("starting metrics: %w", err)
		}
		readers = append(readers, metric.WithReader(metric.NewPeriodicReader(pusher)))
	}
	meters := metric.NewMeterProvider(readers...)
	otel.SetMeterProvider(meters)
	t.stop = append(t.stop, meters.Shutdown)
	traced, err := exports("TRACES")
	if err != nil {
		return nil, err
	}
	// Set once only: otel binds tracers that packages made before for good to the first provider.
	if !traced {
		otel.SetTracerProvider(passingTracers{})
	} else {
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

// exports says whether a signal (TRACES, METRICS) is to be sent by OTLP.
func exports(signal string) (bool, error) {
	ofSignal := func(name string) string {
		if value := os.Getenv("OTEL_EXPORTER_OTLP_" + signal + "_" + name); value != "" {
			return value
		}
		return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	if ofSignal("ENDPOINT") == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false, nil
	}
	if protocol := ofSignal("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported: use http/protobuf (port 4318 of a collector)", protocol)
	}
	return true, nil
}

// instance tells replicas apart, in what is pushed.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + ":" + strconv.Itoa(os.Getpid())
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
