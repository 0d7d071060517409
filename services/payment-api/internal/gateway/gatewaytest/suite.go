// Package gatewaytest is the conformance suite of gateway connectors: what payment-api relies on to charge a customer
// once. Every connector runs it against its gateway, or against the gateway's own test environment.
package gatewaytest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require" //nolint:depguard // only tests import this package

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/services/payment-api/internal/gateway"
)

// Fixture is one connector, ready to be called.
type Fixture struct {
	Gateway gateway.Gateway
	Scope   postgres.Scope
	// Succeeds and Declines are payment methods that do so at once.
	Succeeds, Declines string
	// NotSent is one whose call cannot be sent, and Silent one whose charge succeeds and is never answered. Where a
	// gateway has no such method, the connector brings it about otherwise or leaves the member empty.
	NotSent, Silent string
	// Executed counts what the gateway has really done for an attempt: charges or refunds, not answers.
	Executed func(t *testing.T, attemptID uuid.UUID) int
}

func (f Fixture) charge(paymentMethod string) gateway.Attempt {
	return gateway.Attempt{ID: id.New(), Scope: f.Scope, Amount: 1000, Currency: "EUR", PaymentMethod: paymentMethod}
}

// charged is a charge that succeeded.
func (f Fixture) charged(t *testing.T) (gateway.Attempt, gateway.Result) {
	t.Helper()
	a := f.charge(f.Succeeds)
	result, err := f.Gateway.Charge(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Succeeded, result.Outcome)
	return a, result
}

func refundOf(charge gateway.Attempt, result gateway.Result, amount int64) gateway.Attempt {
	r := charge
	r.ID, r.Amount, r.ChargeID, r.ChargeReference = id.New(), amount, charge.ID, result.Reference
	return r
}

// Run runs every case on a fixture of its own.
func Run(t *testing.T, fixture func(t *testing.T) Fixture) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, Fixture){
		"HasAName":                     func(t *testing.T, f Fixture) { require.NotEmpty(t, f.Gateway.Name()) },
		"AnIDChargesOnce":              anIDChargesOnce,
		"ADeclineSaysWhy":              aDeclineSaysWhy,
		"LookupTellsAndChangesNothing": lookupTells,
		"NotSentIsNotExecuted":         notSentIsNotExecuted,
		"ADeadlineIsHonored":           aDeadlineIsHonored,
		"ACanceledCallReturns":         aCanceledCallReturns,
		"CloseRefusesForEver":          closeRefusesForEver,
		"CloseAnswersWhatExists":       closeAnswersWhatExists,
		"CloseAndChargeRace":           closeAndChargeRace,
		"AnIDRefundsOnce":              anIDRefundsOnce,
		"RefundsStayWithinTheCharge":   refundsStayWithin,
		"ARefundCanBeClosed":           aRefundCanBeClosed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, fixture(t))
		})
	}
}

func anIDChargesOnce(t *testing.T, f Fixture) {
	a := f.charge(f.Succeeds)
	results := make([]gateway.Result, 8)
	errs := make([]error, len(results))
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i], errs[i] = f.Gateway.Charge(t.Context(), a) })
	}
	all.Wait()
	for i := range results {
		require.NoError(t, errs[i])
		require.Equal(t, gateway.Succeeded, results[i].Outcome)
		require.Equal(t, results[0].Reference, results[i].Reference)
	}
	require.NotEmpty(t, results[0].Reference)
	require.Equal(t, 1, f.Executed(t, a.ID))
}

func aDeclineSaysWhy(t *testing.T, f Fixture) {
	a := f.charge(f.Declines)
	for range 2 {
		result, err := f.Gateway.Charge(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.Declined, result.Outcome)
		require.NotEmpty(t, result.DeclineCode)
	}
	require.Zero(t, f.Executed(t, a.ID))
	found, err := f.Gateway.Lookup(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Declined, found.Outcome)
	require.NotEmpty(t, found.DeclineCode)
}

func lookupTells(t *testing.T, f Fixture) {
	a := f.charge(f.Succeeds)
	for range 2 {
		result, err := f.Gateway.Lookup(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.NotFound, result.Outcome)
	}
	require.Zero(t, f.Executed(t, a.ID))
	charged, err := f.Gateway.Charge(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Succeeded, charged.Outcome, "a look-up must not take the id")
	found, err := f.Gateway.Lookup(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, charged, found)
}

func notSentIsNotExecuted(t *testing.T, f Fixture) {
	if f.NotSent == "" {
		t.Skip("the connector cannot bring this about")
	}
	a := f.charge(f.NotSent)
	_, err := f.Gateway.Charge(t.Context(), a)
	require.ErrorIs(t, err, gateway.ErrNotExecuted)
	require.Zero(t, f.Executed(t, a.ID))
	found, err := f.Gateway.Lookup(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.NotFound, found.Outcome)
}

func aDeadlineIsHonored(t *testing.T, f Fixture) {
	if f.Silent == "" {
		t.Skip("the connector cannot bring this about")
	}
	a := f.charge(f.Silent)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := f.Gateway.Charge(ctx, a)
	require.Error(t, err)
	require.NotErrorIs(t, err, gateway.ErrNotExecuted, "what was sent may have been executed")
	require.Less(t, time.Since(began), 5*time.Second)
	found, err := f.Gateway.Lookup(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Succeeded, found.Outcome)
	require.Equal(t, 1, f.Executed(t, a.ID))
}

func aCanceledCallReturns(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := f.charge(f.Succeeds)
	_, err := f.Gateway.Charge(ctx, a)
	require.Error(t, err)
	_, err = f.Gateway.Lookup(ctx, a)
	require.Error(t, err)
	_, err = f.Gateway.Close(ctx, a)
	require.Error(t, err)
}

func closeRefusesForEver(t *testing.T, f Fixture) {
	a := f.charge(f.Succeeds)
	for range 2 {
		result, err := f.Gateway.Close(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, gateway.Refused, result.Outcome)
	}
	result, err := f.Gateway.Charge(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Refused, result.Outcome)
	found, err := f.Gateway.Lookup(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, gateway.Refused, found.Outcome)
	require.Zero(t, f.Executed(t, a.ID))
}

func closeAnswersWhatExists(t *testing.T, f Fixture) {
	a, charged := f.charged(t)
	for range 2 {
		result, err := f.Gateway.Close(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, charged, result)
	}
	declined := f.charge(f.Declines)
	_, err := f.Gateway.Charge(t.Context(), declined)
	require.NoError(t, err)
	result, err := f.Gateway.Close(t.Context(), declined)
	require.NoError(t, err)
	require.Equal(t, gateway.Declined, result.Outcome)
}

func closeAndChargeRace(t *testing.T, f Fixture) {
	for range 20 {
		a := f.charge(f.Succeeds)
		var charged, closed gateway.Result
		var chargeErr, closeErr error
		var both sync.WaitGroup
		both.Go(func() { charged, chargeErr = f.Gateway.Charge(t.Context(), a) })
		both.Go(func() { closed, closeErr = f.Gateway.Close(t.Context(), a) })
		both.Wait()
		require.NoError(t, chargeErr)
		require.NoError(t, closeErr)
		require.Equal(t, charged.Outcome, closed.Outcome, "both tell the same truth")
		want := 0
		if charged.Outcome == gateway.Succeeded {
			want = 1
		} else {
			require.Equal(t, gateway.Refused, charged.Outcome)
		}
		require.Equal(t, want, f.Executed(t, a.ID))
	}
}

func anIDRefundsOnce(t *testing.T, f Fixture) {
	charge, charged := f.charged(t)
	r := refundOf(charge, charged, 300)
	for range 3 {
		result, err := f.Gateway.Refund(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, gateway.Succeeded, result.Outcome)
	}
	require.Equal(t, 1, f.Executed(t, r.ID))
	found, err := f.Gateway.Lookup(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, gateway.Succeeded, found.Outcome)
}

func refundsStayWithin(t *testing.T, f Fixture) {
	charge, charged := f.charged(t)
	outcomes := make([]gateway.Outcome, 5)
	errs := make([]error, len(outcomes))
	var all sync.WaitGroup
	for i := range outcomes {
		all.Go(func() {
			var result gateway.Result
			result, errs[i] = f.Gateway.Refund(t.Context(), refundOf(charge, charged, 300))
			outcomes[i] = result.Outcome
		})
	}
	all.Wait()
	succeeded := 0
	for i := range outcomes {
		require.NoError(t, errs[i])
		if outcomes[i] == gateway.Succeeded {
			succeeded++
		}
	}
	require.Equal(t, 3, succeeded)
}

func aRefundCanBeClosed(t *testing.T, f Fixture) {
	charge, charged := f.charged(t)
	r := refundOf(charge, charged, 1000)
	result, err := f.Gateway.Close(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, gateway.Refused, result.Outcome)
	result, err = f.Gateway.Refund(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, gateway.Refused, result.Outcome)
	result, err = f.Gateway.Refund(t.Context(), refundOf(charge, charged, 1000))
	require.NoError(t, err)
	require.Equal(t, gateway.Succeeded, result.Outcome, "a closed refund takes nothing of the charge")
}
