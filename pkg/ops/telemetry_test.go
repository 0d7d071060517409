package ops

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Not parallel: the names are of the process.
func TestExports(t *testing.T) {
	for name, c := range map[string]struct {
		env     map[string]string
		traces  bool
		metrics bool
		refused string
	}{
		"nothing":          {},
		"both":             {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, traces: true, metrics: true},
		"traces only":      {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, traces: true},
		"without metrics":  {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_METRICS_EXPORTER": "none"}, traces: true},
		"switched off":     {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}},
		"another protocol": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, refused: "http/protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, unset := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
				t.Setenv(unset, c.env[unset])
			}
			traces, err := exports("TRACES")
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.traces, traces)
			metrics, err := exports("METRICS")
			require.NoError(t, err)
			require.Equal(t, c.metrics, metrics)
		})
	}
}
