package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"apipay.io/hub/pkg/id"
)

// DeliveryStatus is the state of a delivery, as the database spells it.
type DeliveryStatus string

// The states of a delivery. FAILED and DELIVERED ones are sent again only when somebody asks for it.
const (
	StatusPending   DeliveryStatus = "PENDING"
	StatusRetrying  DeliveryStatus = "RETRYING"
	StatusDelivered DeliveryStatus = "DELIVERED"
	StatusFailed    DeliveryStatus = "FAILED"
)

// Why a delivery is FAILED, its failure_reason. There are no others.
const (
	FailedExhausted = "attempts_exhausted"
	FailedDisabled  = "endpoint_disabled"
	FailedDeleted   = "endpoint_deleted"
	FailedExpired   = "expired"
)

// FailureReasons are all of them.
func FailureReasons() []string {
	return []string{FailedExhausted, FailedDisabled, FailedDeleted, FailedExpired}
}

// Why a delivery is not sent again. Each is a 409 of the code that its name spells, but for the first, a 404.
var (
	ErrDeliveryNotFound  = errors.New("no such delivery")
	ErrDeliveryPending   = errors.New("the delivery is due already")
	ErrDeliveryInFlight  = errors.New("the delivery is being sent right now")
	ErrDeliveryDelivered = errors.New("the delivery has succeeded")
	ErrEndpointDisabled  = errors.New("the delivery's endpoint is disabled")
	ErrEndpointDeleted   = errors.New("the delivery's endpoint is deleted")
)

// DeliveryRef names the delivery to retry.
type DeliveryRef struct {
	ID uuid.UUID
	// EndpointID is the endpoint it must belong to; the zero value admits any.
	EndpointID uuid.UUID
}

// Retried is a delivery that was made due by hand.
type Retried struct {
	EventID     uuid.UUID
	EndpointID  uuid.UUID
	ID          uuid.UUID
	TenantID    uuid.UUID
	Livemode    bool
	EventType   string
	PriorStatus DeliveryStatus
	DueAt       time.Time
}

// The delivery's id carries its event's millisecond, hence the range, which prunes to one partition. OF d: the endpoint is
// only read, so that a retry neither waits for, nor holds up, a change of it. One that disables it meanwhile wins in any
// case: the dispatcher fails what waits for a disabled endpoint.
const lockDelivery = `
SELECT d.event_id, d.endpoint_id, d.id, d.tenant_id, d.livemode, d.event_type, d.status,
       d.lease_until IS NOT NULL AND d.lease_until > clock_timestamp() AS in_flight,
       e.status = 'disabled' AS endpoint_disabled,
       e.deleted_at IS NOT NULL AS endpoint_deleted
FROM apipay.outbound_webhook_deliveries d
JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id
WHERE d.event_id BETWEEN $1 AND $2
  AND d.id = $3
  AND ($4::uuid IS NULL OR d.endpoint_id = $4)
FOR UPDATE OF d`

type lockedDelivery struct {
	EventID          uuid.UUID
	EndpointID       uuid.UUID
	ID               uuid.UUID
	TenantID         uuid.UUID
	Livemode         bool
	EventType        string
	Status           DeliveryStatus
	InFlight         bool
	EndpointDisabled bool
	EndpointDeleted  bool
}

// RequestRetry makes a FAILED or RETRYING delivery PENDING and due now; with force also a DELIVERED one, which keeps its
// delivered_at. Attempt numbers continue, and the dispatcher does everything after. Of many calls at once one succeeds and
// the others get ErrDeliveryPending or, once a dispatcher has it, ErrDeliveryInFlight. Row level security decides which
// deliveries exist for tx, which must be READ COMMITTED; the caller commits.
func RequestRetry(ctx context.Context, tx pgx.Tx, ref DeliveryRef, force bool) (Retried, error) {
	first, last := id.SameMillisecond(ref.ID)
	endpoint := uuid.NullUUID{UUID: ref.EndpointID, Valid: ref.EndpointID != uuid.Nil}
	rows, err := tx.Query(ctx, lockDelivery, first, last, ref.ID, endpoint)
	if err != nil {
		return Retried{}, fmt.Errorf("locking the delivery: %w", err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[lockedDelivery])
	if errors.Is(err, pgx.ErrNoRows) {
		return Retried{}, ErrDeliveryNotFound
	}
	if err != nil {
		return Retried{}, fmt.Errorf("locking the delivery: %w", err)
	}
	if err := d.mayRetry(force); err != nil {
		return Retried{}, err
	}
	dueAt, err := makeDue(ctx, tx, d)
	if err != nil {
		return Retried{}, err
	}
	return Retried{
		EventID: d.EventID, EndpointID: d.EndpointID, ID: d.ID, TenantID: d.TenantID, Livemode: d.Livemode,
		EventType: d.EventType, PriorStatus: d.Status, DueAt: dueAt,
	}, nil
}

// mayRetry names the endpoint's state first: no flag gets around that one.
func (d lockedDelivery) mayRetry(force bool) error {
	switch {
	case d.EndpointDeleted:
		return ErrEndpointDeleted
	case d.EndpointDisabled:
		return ErrEndpointDisabled
	case d.InFlight:
		return ErrDeliveryInFlight
	case d.Status == StatusPending:
		return ErrDeliveryPending
	case d.Status == StatusDelivered && !force:
		return ErrDeliveryDelivered
	}
	return nil
}

// The guard repeats the state that was judged under the lock. lease_token is left alone: one that has run out is the
// dispatcher's to rescue, with its number. recovery_id goes, so that canceling a recovery does not take back what
// somebody asked for by hand.
const makeDeliveryDue = `
UPDATE apipay.outbound_webhook_deliveries
SET status = 'PENDING', priority = 0, trigger = 'manual', next_attempt_at = now(), due_since = now(),
    failed_at = NULL, failure_reason = NULL, recovery_id = NULL, updated_at = now()
WHERE event_id = $1 AND endpoint_id = $2 AND status = $3
RETURNING next_attempt_at`

func makeDue(ctx context.Context, tx pgx.Tx, d lockedDelivery) (time.Time, error) {
	rows, err := tx.Query(ctx, makeDeliveryDue, d.EventID, d.EndpointID, d.Status)
	if err != nil {
		return time.Time{}, fmt.Errorf("making the delivery due: %w", err)
	}
	dueAt, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	if err != nil {
		return time.Time{}, fmt.Errorf("making the delivery due: %w", err)
	}
	return dueAt, nil
}
