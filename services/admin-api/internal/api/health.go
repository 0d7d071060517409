package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

const (
	healthDefault = 7 * 24 * time.Hour
	healthMost    = 31 * 24 * time.Hour
)

// latencyBounds are the upper ends of webhook_endpoint_health.latency_buckets in ms; the last bucket has none.
var latencyBounds = [...]float64{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}

type healthRow struct {
	Hour           time.Time
	Succeeded      int64
	Failed         int64
	LatencyBuckets []int64
	Failures       []byte
}

// endpointHealthView is an endpoint over time: one entry for each hour that had attempts.
type endpointHealthView struct {
	Object     string       `json:"object"`
	EndpointID string       `json:"endpoint_id"`
	From       time.Time    `json:"from"`
	To         time.Time    `json:"to"`
	Hours      []healthHour `json:"hours"`
}

type healthHour struct {
	Hour      time.Time `json:"hour"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	// SuccessRate is from 0 to 1.
	SuccessRate *float64 `json:"success_rate"`
	// LatencyMS are estimates from the roll-up's buckets.
	LatencyMS latencyQuantiles `json:"latency_ms"`
	// Failures counts by error class.
	Failures map[string]int64 `json:"failures"`
}

type latencyQuantiles struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

func (r healthRow) view() (healthHour, error) {
	v := healthHour{
		Hour: utc(r.Hour), Succeeded: r.Succeeded, Failed: r.Failed, Failures: map[string]int64{},
		LatencyMS: latencyQuantiles{quantile(r.LatencyBuckets, 0.5), quantile(r.LatencyBuckets, 0.95), quantile(r.LatencyBuckets, 0.99)},
	}
	if n := r.Succeeded + r.Failed; n > 0 {
		rate := float64(r.Succeeded) / float64(n)
		v.SuccessRate = &rate
	}
	if err := json.Unmarshal(r.Failures, &v.Failures); err != nil {
		return v, fmt.Errorf("reading failures by class: %w", err)
	}
	return v, nil
}

// quantile estimates from a histogram, evenly within a bucket; what lies above the last bound is at least that.
func quantile(buckets []int64, q float64) *float64 {
	var total int64
	for _, n := range buckets {
		total += n
	}
	if total == 0 {
		return nil
	}
	rank, below := q*float64(total), 0.0
	value := latencyBounds[len(latencyBounds)-1]
	lower := 0.0
	for i, n := range buckets {
		if i == len(latencyBounds) {
			break
		}
		if below+float64(n) >= rank && n > 0 {
			value = lower + (latencyBounds[i]-lower)*(rank-below)/float64(n)
			break
		}
		below += float64(n)
		lower = latencyBounds[i]
	}
	value = math.Round(value*10) / 10
	return &value
}

// readEndpointHealth reads the hourly roll-ups: its cost follows the span, not the deliveries.
func (a *API) readEndpointHealth(c *call) error {
	const query = `
		SELECT hour, succeeded, failed, latency_buckets, failures FROM apipay.webhook_endpoint_health
		WHERE endpoint_id = $1 AND hour >= date_trunc('hour', $2::timestamptz) AND hour < $3
		ORDER BY hour`
	endpoint, err := c.pathID("endpoint", id.Endpoint)
	if err != nil {
		return err
	}
	q := httpapi.NewQuery(c.Request())
	from, hasFrom := q.RFC3339("from")
	to, hasTo := q.RFC3339("to")
	if err := q.Err(); err != nil {
		return err
	}
	view := endpointHealthView{Object: "endpoint_health", EndpointID: id.Format(id.Endpoint, endpoint), Hours: []healthHour{}}
	err = a.read(c, func(ctx context.Context, tx postgres.Tx) error {
		if _, err := one[endpointRow](ctx, tx, selectEndpoint+` WHERE e.id = $1`, endpoint); err != nil {
			return err
		}
		if !hasTo {
			to = tx.Now
		}
		if !hasFrom {
			from = to.Add(-healthDefault)
		}
		if !from.Before(to) || to.Sub(from) > healthMost {
			return httpapi.New(httpapi.CodeInvalidRequest, "from must be before to, by at most 31 days.")
		}
		view.From, view.To = utc(from), utc(to)
		rows, err := collect[healthRow](ctx, tx, query, endpoint, from, to)
		if err != nil {
			return err
		}
		for _, row := range rows {
			hour, err := row.view()
			if err != nil {
				return err
			}
			view.Hours = append(view.Hours, hour)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, http.StatusOK, view)
}
