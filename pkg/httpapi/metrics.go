package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metricMiddleware measures requests as http.server.request.duration. Its labels are what the service itself chose: the
// route's template, a known method, and the class of the status; never an id, a tenant or an address.
func metricMiddleware(meters metric.MeterProvider) echo.MiddlewareFunc {
	// The instruments of a meter are valid even where it could not make them.
	duration, _ := meters.Meter(scopeName).Float64Histogram("http.server.request.duration", metric.WithUnit("s"),
		metric.WithDescription("Requests answered, by route, method and class of status."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			start := time.Now()
			err := next(c)
			duration.Record(context.WithoutCancel(c.Request().Context()), time.Since(start).Seconds(), metric.WithAttributes(
				attribute.String("http.route", route(c)),
				attribute.String("http.request.method", method(c.Request())),
				attribute.String("http.response.status_class", strconv.Itoa(c.Response().Status/100)+"xx"),
			))
			return err
		}
	}
}
