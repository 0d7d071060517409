package payments_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// ids are the ids of a page.
func ids(a answer) (list []string) {
	for _, o := range a.body()["data"].([]any) {
		list = append(list, o.(map[string]any)["id"].(string))
	}
	return list
}

func TestList(t *testing.T) {
	t.Parallel()

	t.Run("PagesThroughEqualTimes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		empty := me.get(intents).is(200)
		require.Equal(t, `{"object":"list","data":[],"has_more":false,"next_cursor":null}`, empty.raw)
		want := map[string]bool{}
		for range 25 {
			want[me.created("pm_card_visa")] = true
		}
		b.as(b.b).created("pm_card_visa")
		me.live().post(intents, `{"amount":1,"currency":"EUR"}`).is(201)
		b.exec(`UPDATE apipay.payment_intents SET created_at = '2026-01-01T00:00:00.123456Z'`)
		pages, path := 0, intents+"?limit=10"
		for {
			page := me.get(path).is(200)
			pages++
			for _, pi := range ids(page) {
				require.True(t, want[pi], "%s is foreign or comes twice", pi)
				delete(want, pi)
			}
			if page.body()["has_more"] == false {
				require.Nil(t, page.body()["next_cursor"])
				break
			}
			// What is made meanwhile is newer and changes no later page.
			me.created("pm_card_visa")
			path = intents + "?limit=10&cursor=" + page.str("next_cursor")
		}
		require.Equal(t, 3, pages)
		require.Empty(t, want)
		require.Len(t, ids(me.get(intents).is(200)), 10)
	})

	t.Run("NewestFirst", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var made []string
		for range 5 {
			made = append([]string{b.me().created("pm_card_visa")}, made...)
		}
		require.Equal(t, made, ids(b.me().get(intents).is(200)))
		require.Equal(t, made[:2], ids(b.me().get(intents+"?limit=2").is(200)))
	})

	t.Run("Filters", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		eur := me.created("pm_card_visa")
		yen := me.post(intents, `{"amount":80,"currency":"JPY","merchant_reference":"r 1%"}`).is(201).id()
		old := me.created("pm_card_visa")
		b.exec(`UPDATE apipay.payment_intents SET created_at = to_timestamp(1000000) + interval '0.5 s' WHERE id = $1`, b.uuid("pi", old))
		me.post(confirmPath(eur), "").is(200)
		for query, want := range map[string][]string{
			"currency=jpy": {yen},
			"currency=JPY&status=requires_payment_method":   {yen},
			"currency=JPY&status=succeeded":                 nil,
			"status=succeeded":                              {eur},
			"merchant_reference=" + url.QueryEscape("r 1%"): {yen},
			"merchant_reference=" + url.QueryEscape("%"):    nil,
			"created[lt]=1000001":                           {old},
			"created%5Bgte%5D=1000001":                      {yen, eur},
			"created[gte]=1000000&created[lt]=1000001":      {old},
			"created[gte]=1000001&created[lt]=1000001":      nil,
		} {
			require.Equal(t, want, ids(me.get(intents+"?"+query).is(200)), query)
		}
	})

	t.Run("RefusesParameters", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		for range 3 {
			me.created("pm_card_visa")
		}
		for _, query := range []string{
			"limit=0", "limit=101", "limit=x", "limit=-1", "limit=1.5", "limit=9223372036854775808", "limit=1&limit=2", "limit=",
			"x=1", "status=SUCCEEDED", "status=", "currency=XXX", "merchant_reference=", "created[gte]=2026-03-29T02:30",
			"created[gte]=-1", "created[gt]=1", "offset=1",
		} {
			me.get(intents+"?"+query).is(400, "invalid_request")
		}
		cursor := me.get(intents + "?limit=1").is(200).str("next_cursor")
		me.get(intents + "?limit=2&cursor=" + cursor).is(200)
		for _, query := range []string{
			"cursor=x", "cursor=", "cursor=" + cursor + "A", "cursor=B" + cursor[1:], "status=succeeded&cursor=" + cursor,
		} {
			me.get(intents+"?"+query).is(400, "cursor_invalid")
		}
		b.as(b.b).get(intents+"?cursor="+cursor).is(400, "cursor_invalid")
		me.live().get(intents+"?cursor="+cursor).is(400, "cursor_invalid")
		pi := me.paid("100", "pm_card_visa")
		me.get(refundPath(pi)+"?cursor="+cursor).is(400, "cursor_invalid")
		me.get(refundPath(pi)+"?status=failed").is(400, "invalid_request")
		me.get(intents+"/"+pi+"?expand=x").is(400, "invalid_request")
	})

	t.Run("RefundsOfAnIntent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		me := b.me()
		pi, other := me.paid("100", "pm_card_visa"), me.paid("100", "pm_card_visa")
		var made []string
		for n := 1; n <= 3; n++ {
			made = append([]string{me.post(refundPath(pi), fmt.Sprintf(`{"amount":%d}`, n)).is(201).id()}, made...)
		}
		me.post(refundPath(other), "").is(201)
		page := me.get(refundPath(pi) + "?limit=2").is(200)
		require.Equal(t, made[:2], ids(page))
		require.Equal(t, made[2:], ids(me.get(refundPath(pi)+"?limit=2&cursor="+page.str("next_cursor")).is(200)))
		me.get(refundPath(other)+"?cursor="+page.str("next_cursor")).is(400, "cursor_invalid")
	})
}
