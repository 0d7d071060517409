package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestNewEcho_MeasuresRequests(t *testing.T) {
	t.Parallel()
	reader := metric.NewManualReader()
	e := NewEcho(Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	e.GET("/things/:id", func(c echo.Context) error {
		switch c.Param("id") {
		case "none":
			return New(CodeNotFound, "")
		case "panic":
			panic("at the disco")
		}
		return c.NoContent(http.StatusNoContent)
	})
	for _, request := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/things/one?secret=x", nil),
		httptest.NewRequest(http.MethodGet, "/things/two", nil),
		httptest.NewRequest(http.MethodGet, "/things/none", nil),
		httptest.NewRequest(http.MethodGet, "/things/panic", nil),
		httptest.NewRequest("BREW", "/coffee/me-a-long-name", nil),
	} {
		e.ServeHTTP(httptest.NewRecorder(), request)
	}
	var seen metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &seen))
	require.Len(t, seen.ScopeMetrics, 1)
	require.Equal(t, "http.server.request.duration", seen.ScopeMetrics[0].Metrics[0].Name)
	counts := map[[3]string]uint64{}
	for _, point := range seen.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints {
		var labels [3]string
		for i, name := range []string{"http.request.method", "http.route", "http.response.status_class"} {
			value, ok := point.Attributes.Value(attribute.Key(name))
			require.True(t, ok, name)
			labels[i] = value.AsString()
		}
		require.Equal(t, 3, point.Attributes.Len())
		counts[labels] = point.Count
	}
	require.Equal(t, map[[3]string]uint64{
		{"GET", "/things/:id", "2xx"}: 2, {"GET", "/things/:id", "4xx"}: 1, {"GET", "/things/:id", "5xx"}: 1,
		{"_OTHER", "unmatched", "4xx"}: 1,
	}, counts)
}
