package payments_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfirm(t *testing.T) {
	t.Parallel()

	t.Run("Charges", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi := me.created("pm_card_visa")
		a := me.post(intents+"/"+pi+"/confirm", "").is(200)
		require.Equal(t, "succeeded", a.str("status"))
		require.Equal(t, "pm_card_visa", a.str("payment_method"))
		require.JSONEq(t, a.raw, me.intent(pi).raw)
		require.Equal(t, 1, b.charges(pi))
		require.Equal(t, 1, b.count(`SELECT count(*) FROM apipay.payment_attempts`))
		require.Equal(t, []string{"payment_intent.created", "payment_intent.succeeded"}, b.told(pi))
		b.contract()
	})
}
