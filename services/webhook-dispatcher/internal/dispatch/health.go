package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/postgres"
)

// outcome is what one attempt says about its endpoint.
type outcome struct {
	succeeded   bool
	unreachable bool
	gone        bool
}

// tally is what one batch says about one endpoint, in the order in which the attempts ended.
type tally struct {
	endpointID uuid.UUID
	tenantID   uuid.UUID
	livemode   bool
	outcomes   []outcome
	succeeded  int64
	failed     int64
	buckets    [11]int64
	classes    map[string]int64
}

var bucketBounds = [10]time.Duration{10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000}

func bucketOf(latency time.Duration) int {
	for i, bound := range bucketBounds {
		if latency <= bound*time.Millisecond {
			return i
		}
	}
	return len(bucketBounds)
}

// tallyUp sorts by endpoint. Attempts that were superseded, or recorded before, say nothing new.
func tallyUp(list []attempt, counted map[uuid.UUID]bool) []*tally {
	byEndpoint := map[uuid.UUID]*tally{}
	var tallies []*tally
	for _, a := range list {
		if !counted[a.id] {
			continue
		}
		t := byEndpoint[a.EndpointID]
		if t == nil {
			t = &tally{endpointID: a.EndpointID, tenantID: a.TenantID, livemode: a.Livemode, classes: map[string]int64{}}
			byEndpoint[a.EndpointID] = t
			tallies = append(tallies, t)
		}
		t.outcomes = append(t.outcomes, outcome{
			succeeded: a.result.Succeeded(), unreachable: a.result.Class.IsUnreachable(), gone: a.result.StatusCode == http.StatusGone,
		})
		t.buckets[bucketOf(a.result.Phases.Total)]++
		if a.result.Succeeded() {
			t.succeeded++
		} else {
			t.failed++
			t.classes[string(a.result.Class)]++
		}
	}
	slices.SortFunc(tallies, func(a, b *tally) int { return bytes.Compare(a.endpointID[:], b.endpointID[:]) })
	return tallies
}

// One row per endpoint and hour, raised once per batch and not per attempt; the last statement before the commit, so that
// a row that two dispatchers share is locked for as short as can be.
const addHealthQuery = `
	INSERT INTO apipay.webhook_endpoint_health AS h (endpoint_id, hour, tenant_id, livemode, succeeded, failed, latency_buckets, failures)
	SELECT r.endpoint_id, date_trunc('hour', now()), r.tenant_id, r.livemode, r.succeeded, r.failed, r.buckets::bigint[], r.failures
	FROM unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::bigint[], $5::bigint[], $6::text[], $7::jsonb[])
	    AS r (endpoint_id, tenant_id, livemode, succeeded, failed, buckets, failures)
	ON CONFLICT (endpoint_id, hour) DO UPDATE
	SET succeeded = h.succeeded + EXCLUDED.succeeded,
	    failed = h.failed + EXCLUDED.failed,
	    latency_buckets = ARRAY(SELECT o + n FROM unnest(h.latency_buckets, EXCLUDED.latency_buckets) WITH ORDINALITY AS b (o, n, i) ORDER BY i),
	    failures = CASE WHEN EXCLUDED.failures = '{}' THEN h.failures ELSE (
	        SELECT jsonb_object_agg(f.class, f.n) FROM (
	            SELECT c.key AS class, sum(c.value::bigint) AS n
	            FROM (SELECT * FROM jsonb_each_text(h.failures) UNION ALL SELECT * FROM jsonb_each_text(EXCLUDED.failures)) c
	            GROUP BY c.key) f) END`

func addHealth(ctx context.Context, tx postgres.Tx, tallies []*tally) error {
	n := len(tallies)
	if n == 0 {
		return nil
	}
	endpointIDs, tenantIDs, livemodes := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]bool, n)
	succeeded, failed, buckets, classes := make([]int64, n), make([]int64, n), make([]string, n), make([]string, n)
	for i, t := range tallies {
		endpointIDs[i], tenantIDs[i], livemodes[i], succeeded[i], failed[i] = t.endpointID, t.tenantID, t.livemode, t.succeeded, t.failed
		numbers := make([]string, len(t.buckets))
		for j, b := range t.buckets {
			numbers[j] = strconv.FormatInt(b, 10)
		}
		buckets[i] = "{" + strings.Join(numbers, ",") + "}"
		encoded, err := json.Marshal(t.classes)
		if err != nil {
			return fmt.Errorf("encoding failures: %w", err)
		}
		classes[i] = string(encoded)
	}
	if _, err := tx.Exec(ctx, addHealthQuery, endpointIDs, tenantIDs, livemodes, succeeded, failed, buckets, classes); err != nil {
		return fmt.Errorf("adding to the roll-ups: %w", err)
	}
	return nil
}
