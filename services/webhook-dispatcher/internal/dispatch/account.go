package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

const (
	breakerOpensAt  = 5
	firstWarning    = 24 * time.Hour
	secondWarning   = 4 * 24 * time.Hour
	disableAfter    = 7 * 24 * time.Hour
	disableAttempts = 10
	// disableSpread is how far apart two failures must lie: one burst of retries, however long ago, is one failure.
	disableSpread = 12 * time.Hour

	reasonFailing = "failing"
	reasonGone    = "gone"
)

// endpointState is what the dispatcher knows of an endpoint's reachability, with what it needs of the endpoint's row.
type endpointState struct {
	EndpointID             uuid.UUID
	FailingSince           *time.Time
	FailedAttempts         int32
	LastFailureAt          *time.Time
	LastSuccessAt          *time.Time
	CountedFrom            *time.Time
	WarningsTold           int16
	ConsecutiveUnreachable int32
	BreakerOpenedAt        *time.Time
	NextProbeAt            *time.Time
	EnabledAt              time.Time
}

// tell is an event that a result gives rise to, about the endpoint.
type tell struct {
	eventType string
	// reason is why the endpoint is disabled.
	reason string
}

// after is the state after one more result at now, and what is to be told. It is the whole rule of failing, recovering,
// switching off and of the breaker; whether a tell comes first is then decided by a guarded UPDATE.
func (s endpointState) after(o outcome, now time.Time) (endpointState, *tell) {
	if s.CountedFrom == nil || !s.CountedFrom.Equal(s.EnabledAt) {
		// Switched on again since: the counters start anew. What was told stays to be called off by a success.
		told := s.WarningsTold
		s = endpointState{EndpointID: s.EndpointID, LastSuccessAt: s.LastSuccessAt, CountedFrom: &s.EnabledAt, EnabledAt: s.EnabledAt}
		if o.succeeded {
			s.WarningsTold = told
		}
	}
	if o.succeeded {
		recovered := s.WarningsTold > 0
		s = endpointState{EndpointID: s.EndpointID, LastFailureAt: s.LastFailureAt, LastSuccessAt: &now,
			CountedFrom: s.CountedFrom, EnabledAt: s.EnabledAt}
		if recovered {
			return s, &tell{eventType: events.TypeWebhookEndpointRecovered}
		}
		return s, nil
	}
	if s.FailingSince == nil {
		s.FailingSince = &now
	}
	s.FailedAttempts++
	s.LastFailureAt = &now
	s = s.breaker(o, now)
	failing := now.Sub(*s.FailingSince)
	switch {
	case o.gone:
		return s, &tell{eventType: events.TypeWebhookEndpointDisabled, reason: reasonGone}
	case failing >= disableAfter && failing >= disableSpread && s.FailedAttempts >= disableAttempts:
		return s, &tell{eventType: events.TypeWebhookEndpointDisabled, reason: reasonFailing}
	case failing >= secondWarning && s.WarningsTold < 2:
		s.WarningsTold = 2
	case failing >= firstWarning && s.WarningsTold < 1:
		s.WarningsTold = 1
	default:
		return s, nil
	}
	return s, &tell{eventType: events.TypeWebhookEndpointFailing}
}

func (s endpointState) breaker(o outcome, now time.Time) endpointState {
	if !o.unreachable {
		s.ConsecutiveUnreachable = 0
		return s
	}
	s.ConsecutiveUnreachable++
	if s.ConsecutiveUnreachable >= breakerOpensAt && s.BreakerOpenedAt == nil {
		probe := now.Add(probeEvery)
		s.BreakerOpenedAt, s.NextProbeAt = &now, &probe
	}
	return s
}

// A success changes nothing of a healthy endpoint but the time of the last one, which is kept to ten seconds: so the row
// of a busy endpoint is not written with every batch. Ordered, so that two dispatchers cannot lock each other out.
const lockStates = `
	SELECT s.endpoint_id, s.failing_since, s.failed_attempts, s.last_failure_at, s.last_success_at, s.counted_from, s.warnings_told,
	       s.consecutive_unreachable, s.breaker_opened_at, s.next_probe_at, e.enabled_at
	FROM apipay.webhook_endpoint_states s
	JOIN apipay.webhook_endpoints e ON e.id = s.endpoint_id
	WHERE s.endpoint_id = ANY ($1)
	  AND (s.endpoint_id = ANY ($2) OR s.failing_since IS NOT NULL OR s.consecutive_unreachable > 0 OR s.breaker_opened_at IS NOT NULL
	       OR s.warnings_told > 0 OR s.counted_from IS DISTINCT FROM e.enabled_at
	       OR coalesce(s.last_success_at < now() - interval '10 seconds', true))
	ORDER BY s.endpoint_id
	FOR UPDATE OF s`

const insertStates = `
	INSERT INTO apipay.webhook_endpoint_states (endpoint_id, tenant_id, livemode)
	SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::boolean[])
	ON CONFLICT DO NOTHING`

// account brings the endpoints' states up to date and tells what follows. It answers the endpoints whose row was made.
func (d *Dispatcher) account(ctx context.Context, tx postgres.Tx, tallies []*tally) (stated []uuid.UUID, err error) {
	var all, failed, tenantIDs []uuid.UUID
	var livemodes []bool
	byEndpoint := make(map[uuid.UUID]*tally, len(tallies))
	for _, t := range tallies {
		byEndpoint[t.endpointID] = t
		all = append(all, t.endpointID)
		if t.failed > 0 {
			failed = append(failed, t.endpointID)
		}
		if _, known := d.stated.Load(t.endpointID); !known {
			stated, tenantIDs, livemodes = append(stated, t.endpointID), append(tenantIDs, t.tenantID), append(livemodes, t.livemode)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	if len(stated) > 0 {
		if _, err := tx.Exec(ctx, insertStates, stated, tenantIDs, livemodes); err != nil {
			return nil, fmt.Errorf("making endpoint states: %w", err)
		}
	}
	rows, err := tx.Query(ctx, lockStates, all, failed)
	if err != nil {
		return nil, fmt.Errorf("locking endpoint states: %w", err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByName[endpointState])
	if err != nil {
		return nil, fmt.Errorf("locking endpoint states: %w", err)
	}
	for i := range states {
		for _, o := range byEndpoint[states[i].EndpointID].outcomes {
			var t *tell
			states[i], t = states[i].after(o, tx.Now)
			if t == nil {
				continue
			}
			if err := announce(ctx, tx, states[i].EndpointID, *t); err != nil {
				return nil, err
			}
		}
	}
	return stated, updateStates(ctx, tx, states)
}

const updateStatesQuery = `
	UPDATE apipay.webhook_endpoint_states s
	SET failing_since = r.failing_since, failed_attempts = r.failed_attempts, last_failure_at = r.last_failure_at,
	    last_success_at = r.last_success_at, counted_from = r.counted_from, warnings_told = r.warnings_told,
	    consecutive_unreachable = r.consecutive_unreachable, breaker_opened_at = r.breaker_opened_at, next_probe_at = r.next_probe_at
	FROM unnest($1::uuid[], $2::timestamptz[], $3::integer[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
	            $7::smallint[], $8::integer[], $9::timestamptz[], $10::timestamptz[])
	    AS r (endpoint_id, failing_since, failed_attempts, last_failure_at, last_success_at, counted_from, warnings_told,
	          consecutive_unreachable, breaker_opened_at, next_probe_at)
	WHERE s.endpoint_id = r.endpoint_id`

func updateStates(ctx context.Context, tx postgres.Tx, states []endpointState) error {
	n := len(states)
	if n == 0 {
		return nil
	}
	ids, since, attempts := make([]uuid.UUID, n), make([]*time.Time, n), make([]int32, n)
	failures, successes, counted := make([]*time.Time, n), make([]*time.Time, n), make([]*time.Time, n)
	warnings, unreachable := make([]int16, n), make([]int32, n)
	opened, probes := make([]*time.Time, n), make([]*time.Time, n)
	for i, s := range states {
		ids[i], since[i], attempts[i] = s.EndpointID, s.FailingSince, s.FailedAttempts
		failures[i], successes[i], counted[i] = s.LastFailureAt, s.LastSuccessAt, s.CountedFrom
		warnings[i], unreachable[i], opened[i], probes[i] = s.WarningsTold, s.ConsecutiveUnreachable, s.BreakerOpenedAt, s.NextProbeAt
	}
	_, err := tx.Exec(ctx, updateStatesQuery, ids, since, attempts, failures, successes, counted, warnings, unreachable, opened, probes)
	if err != nil {
		return fmt.Errorf("updating endpoint states: %w", err)
	}
	return nil
}
