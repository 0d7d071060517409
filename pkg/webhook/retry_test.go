package webhook

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBundle is one tenant with an endpoint, in a database of its own.
type testBundle struct {
	owner, app, admin *pgxpool.Pool
	scope             postgres.Scope
	endpoint          uuid.UUID
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	db := testdb.New(t)
	b := &testBundle{
		owner: db.Pool(t, db.Owner), app: db.Pool(t, db.App), admin: db.Pool(t, db.Admin),
		scope: postgres.Scope{TenantID: id.New()}, endpoint: id.New(),
	}
	b.exec(t, `INSERT INTO apipay.tenants (id, name) VALUES ($1, 'shop')`, b.scope.TenantID)
	b.exec(t, `INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events)
		VALUES ($1, $2, $3, 'https://example.com/', '{*}')`, b.endpoint, b.scope.TenantID, b.scope.Livemode)
	return b
}

func (b *testBundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// delivery makes a row; columns is what SET of an UPDATE takes.
func (b *testBundle) delivery(t *testing.T, columns string) DeliveryRef {
	t.Helper()
	event := id.New()
	var delivery uuid.UUID
	require.NoError(t, b.owner.QueryRow(t.Context(), `
		INSERT INTO apipay.outbound_webhook_deliveries (event_id, endpoint_id, id, tenant_id, livemode, event_type, next_attempt_at)
		VALUES ($1, $2, apipay.uuid7_beside($1), $3, $4, 'ping', now()) RETURNING id`,
		event, b.endpoint, b.scope.TenantID, b.scope.Livemode).Scan(&delivery))
	b.exec(t, `UPDATE apipay.outbound_webhook_deliveries SET `+columns+` WHERE id = $1`, delivery)
	return DeliveryRef{ID: delivery}
}

func (b *testBundle) retryAsMerchant(ctx context.Context, ref DeliveryRef, force bool) (retried Retried, err error) {
	err = postgres.InTenant(ctx, b.app, b.scope, func(tx postgres.Tx) error {
		retried, err = RequestRetry(ctx, tx, ref, force)
		return err
	})
	return retried, err
}

func (b *testBundle) retryAsSupport(ctx context.Context, ref DeliveryRef, force bool) (retried Retried, err error) {
	err = postgres.InSupport(ctx, b.admin, b.scope.TenantID.String(), func(tx postgres.Tx) error {
		retried, err = RequestRetry(ctx, tx, ref, force)
		return err
	})
	return retried, err
}

type deliveryRow struct {
	Status        DeliveryStatus
	Priority      int16
	Trigger       string
	AttemptCount  int
	NextAttemptAt *time.Time
	DueSince      time.Time
	LeaseToken    *uuid.UUID
	RecoveryID    *uuid.UUID
	DeliveredAt   *time.Time
	FailedAt      *time.Time
	FailureReason *string
	IsDue         bool
	UpdatedAt     time.Time
}

func (b *testBundle) read(t *testing.T, ref DeliveryRef) deliveryRow {
	t.Helper()
	rows, err := b.owner.Query(t.Context(), `
		SELECT status, priority, trigger, attempt_count, next_attempt_at, due_since, lease_token, recovery_id, delivered_at,
		       failed_at, failure_reason, coalesce(next_attempt_at <= now(), false) AS is_due, updated_at
		FROM apipay.outbound_webhook_deliveries WHERE id = $1`, ref.ID)
	require.NoError(t, err)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[deliveryRow])
	require.NoError(t, err)
	return row
}

// What a delivery looks like in each state, with times that a retry would be seen to change.
const (
	asFailed = `status = 'FAILED', attempt_count = 6, priority = 1, next_attempt_at = NULL, failed_at = now() - interval '1 day',
		failure_reason = 'attempts_exhausted', due_since = now() - interval '2 days', updated_at = now() - interval '1 day'`
	asRetrying = `status = 'RETRYING', attempt_count = 2, priority = 1, next_attempt_at = now() + interval '1 hour',
		due_since = now() - interval '2 days', trigger = 'recovery', recovery_id = gen_random_uuid()`
	asDelivered = `status = 'DELIVERED', attempt_count = 1, next_attempt_at = NULL, delivered_at = now() - interval '1 day',
		due_since = now() - interval '2 days'`
	asPending     = `next_attempt_at = now() + interval '1 hour', due_since = now() - interval '2 days'`
	leased        = `, lease_token = gen_random_uuid(), lease_until = now() + interval '1 minute'`
	leaseHasEnded = `, lease_token = gen_random_uuid(), lease_until = now() - interval '1 second'`
)

func TestRequestRetry_MakesDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct {
		columns  string
		force    bool
		prior    DeliveryStatus
		attempts int
	}{
		"Failed":                  {asFailed, false, StatusFailed, 6},
		"FailedWithForce":         {asFailed, true, StatusFailed, 6},
		"Retrying":                {asRetrying, false, StatusRetrying, 2},
		"RetryingWithEndedLease":  {asRetrying + leaseHasEnded, false, StatusRetrying, 2},
		"DeliveredWithForce":      {asDelivered, true, StatusDelivered, 1},
		"RetryingButDeliveredYet": {asRetrying + `, delivered_at = now()`, false, StatusRetrying, 2},
	} {
		for role, retry := range map[string]func(context.Context, DeliveryRef, bool) (Retried, error){
			"merchant": b.retryAsMerchant, "support": b.retryAsSupport,
		} {
			ref := b.delivery(t, tt.columns)
			before := b.read(t, ref)
			retried, err := retry(t.Context(), ref, tt.force)
			require.NoError(t, err, "%s %s", name, role)
			require.Equal(t, tt.prior, retried.PriorStatus)
			require.Equal(t, ref.ID, retried.ID)
			require.Equal(t, b.endpoint, retried.EndpointID)
			require.Equal(t, b.scope.TenantID, retried.TenantID)
			require.Equal(t, b.scope.Livemode, retried.Livemode)
			require.Equal(t, "ping", retried.EventType)
			low, high := id.SameMillisecond(ref.ID)
			require.True(t, retried.EventID.String() >= low.String() && retried.EventID.String() <= high.String())

			after := b.read(t, ref)
			require.Equal(t, StatusPending, after.Status)
			require.True(t, after.IsDue)
			require.WithinDuration(t, *after.NextAttemptAt, retried.DueAt, 0)
			require.WithinDuration(t, *after.NextAttemptAt, after.DueSince, 0)
			require.Equal(t, "manual", after.Trigger)
			require.Zero(t, after.Priority)
			require.Nil(t, after.FailedAt)
			require.Nil(t, after.FailureReason)
			require.Nil(t, after.RecoveryID)
			require.Equal(t, tt.attempts, after.AttemptCount, "numbers continue")
			require.Equal(t, before.DeliveredAt, after.DeliveredAt)
			require.Equal(t, before.LeaseToken, after.LeaseToken)
			require.True(t, after.UpdatedAt.After(before.UpdatedAt))
		}
	}
}

func TestRequestRetry_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const enabled = `status = 'enabled', disabled_reason = NULL, deleted_at = NULL`
	const disabled = `status = 'disabled', disabled_reason = 'manual', deleted_at = NULL`
	const deleted = `status = 'enabled', disabled_reason = NULL, deleted_at = now()`
	const disabledAndDeleted = `status = 'disabled', disabled_reason = 'manual', deleted_at = now()`
	for name, tt := range map[string]struct {
		columns  string
		endpoint string
		want     error
		// without says that force makes the difference.
		without bool
	}{
		"Pending":               {asPending, enabled, ErrDeliveryPending, false},
		"PendingWithEndedLease": {asPending + leaseHasEnded, enabled, ErrDeliveryPending, false},
		"InFlightFirst":         {asPending + leased, enabled, ErrDeliveryInFlight, false},
		"InFlightLater":         {asRetrying + leased, enabled, ErrDeliveryInFlight, false},
		"Delivered":             {asDelivered, enabled, ErrDeliveryDelivered, true},
		"Disabled":              {asFailed, disabled, ErrEndpointDisabled, false},
		"DisabledAndDelivered":  {asDelivered, disabled, ErrEndpointDisabled, false},
		"Deleted":               {asFailed, deleted, ErrEndpointDeleted, false},
		"DisabledAndDeleted":    {asFailed, disabledAndDeleted, ErrEndpointDeleted, false},
	} {
		b.exec(t, `UPDATE apipay.webhook_endpoints SET `+tt.endpoint+` WHERE id = $1`, b.endpoint)
		ref := b.delivery(t, tt.columns)
		before := b.read(t, ref)
		for _, force := range []bool{false, true} {
			if force && tt.without {
				continue
			}
			_, err := b.retryAsMerchant(t.Context(), ref, force)
			require.ErrorIs(t, err, tt.want, "%s as merchant, force %t", name, force)
			_, err = b.retryAsSupport(t.Context(), ref, force)
			require.ErrorIs(t, err, tt.want, "%s as support, force %t", name, force)
		}
		require.Equal(t, before, b.read(t, ref), name)
	}
}

func TestRequestRetry_NotFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.delivery(t, asFailed)
	before := b.read(t, ref)
	stranger := postgres.Scope{TenantID: id.New(), Livemode: b.scope.Livemode}
	otherMode := postgres.Scope{TenantID: b.scope.TenantID, Livemode: !b.scope.Livemode}

	for name, other := range map[string]DeliveryRef{
		"unknown":        {ID: id.New()},
		"beside":         {ID: uuid.UUID(append(append([]byte(nil), ref.ID[:15]...), ref.ID[15]^1))},
		"zero":           {},
		"last":           {ID: uuid.Max},
		"version 4":      {ID: uuid.New()},
		"other endpoint": {ID: ref.ID, EndpointID: id.New()},
	} {
		_, err := b.retryAsMerchant(t.Context(), other, true)
		require.ErrorIs(t, err, ErrDeliveryNotFound, name)
	}
	for _, scope := range []postgres.Scope{stranger, otherMode} {
		err := postgres.InTenant(t.Context(), b.app, scope, func(tx postgres.Tx) error {
			_, err := RequestRetry(t.Context(), tx, ref, true)
			return err
		})
		require.ErrorIs(t, err, ErrDeliveryNotFound)
	}
	err := postgres.InSupport(t.Context(), b.admin, stranger.TenantID.String(), func(tx postgres.Tx) error {
		_, err := RequestRetry(t.Context(), tx, ref, true)
		return err
	})
	require.ErrorIs(t, err, ErrDeliveryNotFound)
	require.Equal(t, before, b.read(t, ref))

	_, err = b.retryAsMerchant(t.Context(), DeliveryRef{ID: ref.ID, EndpointID: b.endpoint}, false)
	require.NoError(t, err)
}

func TestRequestRetry_OfTwentyClicksOneWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, columns := range []string{asFailed, asRetrying, asDelivered} {
		ref := b.delivery(t, columns)
		errs := make([]error, 20)
		var clicks sync.WaitGroup
		start := make(chan struct{})
		for i := range errs {
			clicks.Go(func() {
				<-start
				retry := b.retryAsMerchant
				if i%2 == 0 {
					retry = b.retryAsSupport
				}
				_, errs[i] = retry(t.Context(), ref, true)
			})
		}
		close(start)
		clicks.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, ErrDeliveryPending)
		}
		require.Equal(t, 1, won)
	}
}

// A click that waits for a dispatcher's claim judges the row as the claim left it.
func TestRequestRetry_WaitsForTheClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.delivery(t, asRetrying)
	claim, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = claim.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = claim.Exec(t.Context(), `UPDATE apipay.outbound_webhook_deliveries
		SET lease_token = gen_random_uuid(), lease_until = clock_timestamp() + interval '1 minute' WHERE id = $1`, ref.ID)
	require.NoError(t, err)

	clicked := make(chan error, 1)
	go func() {
		_, err := b.retryAsMerchant(t.Context(), ref, true)
		clicked <- err
	}()
	require.Eventually(t, func() bool {
		var waiting bool
		// Not inside the claim's transaction: there pg_stat_activity stays as it was first read.
		err := b.owner.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
			WHERE NOT granted AND datname = current_database())`).Scan(&waiting)
		return err == nil && waiting
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, claim.Commit(t.Context()))
	require.ErrorIs(t, <-clicked, ErrDeliveryInFlight)
}

// Neither waits for the other: the endpoint's row is only read.
func TestRequestRetry_LeavesTheEndpointUnlocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.delivery(t, asFailed)
	change, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = change.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = change.Exec(t.Context(), `UPDATE apipay.webhook_endpoints SET version = version + 1 WHERE id = $1`, b.endpoint)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = b.retryAsMerchant(ctx, ref, false)
	require.NoError(t, err)
}

func TestRequestRetry_RollsBackWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.delivery(t, asFailed)
	before := b.read(t, ref)
	errAudit := errors.New("the audit entry could not be written")
	err := postgres.InTenant(t.Context(), b.app, b.scope, func(tx postgres.Tx) error {
		_, err := RequestRetry(t.Context(), tx, ref, false)
		require.NoError(t, err)
		return errAudit
	})
	require.ErrorIs(t, err, errAudit)
	require.Equal(t, before, b.read(t, ref))
}
