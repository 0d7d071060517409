package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
	"apipay.io/hub/services/payment-api/internal/gateway/gatewaytest"
	"apipay.io/hub/services/payment-api/internal/gateway/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type testBundle struct {
	gateway *sandbox.Gateway
	owner   *pgxpool.Pool
	scope   postgres.Scope
}

func setup(t *testing.T) testBundle {
	t.Helper()
	db := testdb.New(t)
	return testBundle{
		gateway: sandbox.New(db.Pool(t, db.App)),
		owner:   db.Pool(t, db.Owner),
		scope:   postgres.Scope{TenantID: id.New()},
	}
}

func (b testBundle) attempt(paymentMethod string) gateway.Attempt {
	return gateway.Attempt{ID: id.New(), Scope: b.scope, Amount: 1000, Currency: "EUR", PaymentMethod: paymentMethod}
}

func (b testBundle) rows(t *testing.T, where string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT count(*) FROM apipay.sandbox_charges WHERE `+where, args...).Scan(&n))
	return n
}

func TestConformance(t *testing.T) {
	t.Parallel()
	gatewaytest.Run(t, func(t *testing.T) gatewaytest.Fixture {
		b := setup(t)
		return gatewaytest.Fixture{
			Gateway: b.gateway, Scope: b.scope,
			Succeeds: "pm_card_visa", Declines: "pm_card_declined", NotSent: "pm_gateway_unavailable",
			Silent: "pm_card_timeout_then_succeeds",
			Executed: func(t *testing.T, attemptID uuid.UUID) int {
				return b.rows(t, `attempt_id = $1 AND status = 'succeeded'`, attemptID)
			},
		}
	})
}

func TestPaymentMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("Recognized", func(t *testing.T) {
		t.Parallel()
		require.True(t, b.gateway.Recognizes("pm_card_visa"))
		require.False(t, b.gateway.Recognizes("pm_card_vsia"))
		result, err := b.gateway.Charge(t.Context(), b.attempt("pm_of_another_gateway"))
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome)
	})

	t.Run("InsufficientFunds", func(t *testing.T) {
		t.Parallel()
		result, err := b.gateway.Charge(t.Context(), b.attempt("pm_card_insufficient_funds"))
		require.NoError(t, err)
		require.Equal(t, "insufficient_funds", result.DeclineCode)
	})

	t.Run("Slow", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		result, err := b.gateway.Charge(t.Context(), b.attempt("pm_card_slow"))
		require.NoError(t, err)
		require.Equal(t, gateway.Succeeded, result.Outcome)
		require.GreaterOrEqual(t, time.Since(began), 6*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = b.gateway.Charge(ctx, b.attempt("pm_card_slow"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})

	t.Run("TimeoutThenFails", func(t *testing.T) {
		t.Parallel()
		a := b.attempt("pm_card_timeout_then_fails")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := b.gateway.Charge(ctx, a)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		result, err := b.gateway.Lookup(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome)
	})

	t.Run("NeverResolves", func(t *testing.T) {
		t.Parallel()
		a := b.attempt("pm_card_never_resolves")
		result, err := b.gateway.Charge(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.Pending, result.Outcome)
		for range 2 {
			result, err = b.gateway.Lookup(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, gateway.Pending, result.Outcome)
			_, err = b.gateway.Close(t.Context(), a)
			require.ErrorIs(t, err, gateway.ErrCannotClose)
		}
	})

	t.Run("RefundPendingThenFails", func(t *testing.T) {
		t.Parallel()
		charge := b.attempt("pm_refund_pending_then_fails")
		result, err := b.gateway.Charge(t.Context(), charge)
		require.NoError(t, err)
		require.Equal(t, gateway.Succeeded, result.Outcome)
		refund := charge
		refund.ID, refund.ChargeID = id.New(), charge.ID
		result, err = b.gateway.Refund(t.Context(), refund)
		require.NoError(t, err)
		require.Equal(t, gateway.Pending, result.Outcome)
		other := refund
		other.ID = id.New()
		result, err = b.gateway.Refund(t.Context(), other)
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome, "a pending refund counts")
		result, err = b.gateway.Lookup(t.Context(), refund)
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome)
		require.NotEmpty(t, result.DeclineCode)
	})

	t.Run("ARefundOfNothing", func(t *testing.T) {
		t.Parallel()
		refund := b.attempt("pm_card_visa")
		refund.ChargeID = id.New()
		result, err := b.gateway.Refund(t.Context(), refund)
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome)
	})

	t.Run("AnotherTenantSeesNothing", func(t *testing.T) {
		t.Parallel()
		a := b.attempt("pm_card_visa")
		_, err := b.gateway.Charge(t.Context(), a)
		require.NoError(t, err)
		a.Scope.TenantID = id.New()
		result, err := b.gateway.Lookup(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.NotFound, result.Outcome)
	})
}
