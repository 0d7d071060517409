package payments_test

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
)

// BenchmarkCreateAndConfirm is the main job over HTTP, from 32 clients on two cores.
func BenchmarkCreateAndConfirm(b *testing.B) {
	bundle := newBundle(b)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a, err := bundle.me().key(uuid.NewString()).do(b.Context(), http.MethodPost, intents,
				[]byte(`{"amount":1000,"currency":"EUR","payment_method":"pm_card_visa","confirm":true}`))
			if err != nil || a.status != http.StatusCreated {
				b.Errorf("%d %v %s", a.status, err, a.raw)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intents/s")
}
