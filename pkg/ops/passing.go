package ops

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// passingTracers pass trace context on and record nothing: what a process uses that exports no traces. The SDK would build
// every span of every statement and throw it away: 6 % of a read's CPU time, and the garbage. Ids are the same as with an exporter: a span
// belongs to its parent's trace, with its flags, or begins a sampled one.
type passingTracers struct{ embedded.TracerProvider }

func (passingTracers) Tracer(string, ...trace.TracerOption) trace.Tracer { return passingTracer{} }

type passingTracer struct{ embedded.Tracer }

// Start begins a span that is no more than its ids.
func (passingTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	config := trace.SpanContextConfig{
		TraceID: parent.TraceID(), SpanID: newSpanID(), TraceFlags: parent.TraceFlags(), TraceState: parent.TraceState(),
	}
	if !parent.IsValid() {
		config.TraceID, config.TraceFlags, config.TraceState = newTraceID(), trace.FlagsSampled, trace.TraceState{}
	}
	span := passingSpan{of: trace.NewSpanContext(config)}
	return trace.ContextWithSpan(ctx, span), span
}

type passingSpan struct {
	noop.Span
	of trace.SpanContext
}

func (s passingSpan) SpanContext() trace.SpanContext { return s.of }

func (s passingSpan) TracerProvider() trace.TracerProvider { return passingTracers{} }

func newTraceID() (t trace.TraceID) {
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64()) // #nosec G404 -- an identifier, not a secret
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64()) // #nosec G404 -- an identifier, not a secret
	}
	return t
}

func newSpanID() (s trace.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64()) // #nosec G404 -- an identifier, not a secret
	}
	return s
}
