package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes what the services push, by OTLP over HTTP, and keeps it.
type collector struct {
	url string

	mu      sync.Mutex
	spans   []span
	raw     [][]byte
	metrics map[string]map[string]*metricsv1.Metric // service -> name
}

type span struct {
	*tracev1.Span
	service string
}

func hexOf(id []byte) string { return hex.EncodeToString(id) }

func (s span) trace() string  { return hexOf(s.TraceId) }
func (s span) id() string     { return hexOf(s.SpanId) }
func (s span) parent() string { return hexOf(s.ParentSpanId) }

func (s span) attribute(key string) string {
	return attributeOf(s.Attributes, key)
}

func attributeOf(attributes []*commonv1.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			if text, ok := a.Value.Value.(*commonv1.AnyValue_StringValue); ok {
				return text.StringValue
			}
			return a.Value.String()
		}
	}
	return ""
}

func collect(t *testing.T) *collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{url: "http://" + listener.Addr().String(), metrics: map[string]map[string]*metricsv1.Metric{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		// An ExportTraceServiceRequest has the same wire form.
		c.take(w, r, &tracev1.TracesData{}, func(m proto.Message) { c.addSpans(m.(*tracev1.TracesData)) })
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		c.take(w, r, &metricsv1.MetricsData{}, func(m proto.Message) { c.addMetrics(m.(*metricsv1.MetricsData)) })
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return c
}

// environ makes the services push to c, soon.
func (c *collector) environ() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_METRIC_EXPORT_INTERVAL=500"}
}

func (c *collector) take(w http.ResponseWriter, r *http.Request, message proto.Message, keep func(proto.Message)) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	if err != nil || proto.Unmarshal(raw, message) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, raw)
	keep(message)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func serviceOf(r *resourcev1.Resource) string { return attributeOf(r.GetAttributes(), "service.name") }

func (c *collector) addSpans(data *tracev1.TracesData) {
	for _, r := range data.ResourceSpans {
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span{s, serviceOf(r.Resource)})
			}
		}
	}
}

func (c *collector) addMetrics(data *metricsv1.MetricsData) {
	for _, r := range data.ResourceMetrics {
		service := serviceOf(r.Resource)
		if c.metrics[service] == nil {
			c.metrics[service] = map[string]*metricsv1.Metric{}
		}
		for _, scope := range r.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[service][m.Name] = m
			}
		}
	}
}

// find answers the spans that fit.
func (c *collector) find(fits func(span) bool) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []span
	for _, s := range c.spans {
		if fits(s) {
			found = append(found, s)
		}
	}
	return found
}

// one waits for the only span that fits.
func (c *collector) one(t *testing.T, what string, fits func(span) bool) span {
	t.Helper()
	return c.some(t, 1, what, fits)[0]
}

func (c *collector) some(t *testing.T, n int, what string, fits func(span) bool) []span {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.find(fits)) >= n }, 15*time.Second, 20*time.Millisecond, what)
	found := c.find(fits)
	require.Len(t, found, n, what)
	return found
}

// names are the metrics that a service pushed.
func (c *collector) names(service string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.metrics[service]))
}

// everything is all that was pushed, as text to look for secrets in.
func (c *collector) everything() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []byte
	for _, raw := range c.raw {
		all = append(all, raw...)
	}
	return string(all)
}
