package ops

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestPassingTracer(t *testing.T) {
	t.Parallel()
	tracer := passingTracers{}.Tracer("")
	ctx, first := tracer.Start(t.Context(), "first")
	require.True(t, first.SpanContext().IsValid())
	require.True(t, first.SpanContext().IsSampled())
	require.False(t, first.IsRecording())
	_, second := tracer.Start(ctx, "second")
	require.Equal(t, first.SpanContext().TraceID(), second.SpanContext().TraceID())
	require.NotEqual(t, first.SpanContext().SpanID(), second.SpanContext().SpanID())

	// What a caller decided about sampling stays its decision.
	caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true})
	ctx, span := tracer.Start(trace.ContextWithRemoteSpanContext(t.Context(), caller), "span")
	require.Equal(t, caller.TraceID(), span.SpanContext().TraceID())
	require.False(t, span.SpanContext().IsSampled())
	require.Equal(t, span.SpanContext(), trace.SpanContextFromContext(ctx))
}
