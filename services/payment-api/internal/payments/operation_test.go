package payments_test

import (
	"github.com/stretchr/testify/require"
)

// prepare makes what an operation works on, and answers its request; pi is "" for a create.
func (c caller) prepare(operation string) (path, body, pi string) {
	c.b.t.Helper()
	switch operation {
	case "confirm":
		pi = c.created("pm_card_visa")
		return confirmPath(pi), "", pi
	case "cancel":
		pi = c.created("pm_card_visa")
		return cancelPath(pi), "", pi
	case "refund":
		pi = c.paid("1000", "pm_card_visa")
		return refundPath(pi), "", pi
	}
	return intents, `{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa","confirm":true}`, ""
}

// settledOnce holds that the operation took effect exactly once, in the ledger and in what merchants are told.
func (b *testBundle) settledOnce(operation, pi string, last answer) {
	b.t.Helper()
	told := b.told(pi)
	if operation == "cancel" {
		require.Equal(b.t, []string{"payment_intent.created", "payment_intent.canceled"}, told)
		require.Zero(b.t, b.charges(pi))
		return
	}
	require.Equal(b.t, 1, b.charges(pi))
	require.Equal(b.t, "payment_intent.succeeded", told[len(told)-1])
	if operation == "refund" {
		require.Equal(b.t, "succeeded", last.str("status"))
		require.Equal(b.t, 1, b.count(`SELECT count(*) FROM apipay.sandbox_charges WHERE kind = 'refund' AND status = 'succeeded'`))
		require.EqualValues(b.t, 1000, b.me().intent(pi).num("amount_refunded"))
	}
	require.Equal(b.t, 1, b.count(`SELECT count(*) FROM apipay.payment_intents`))
	b.contract()
}
