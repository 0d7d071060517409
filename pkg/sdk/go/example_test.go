package apipay_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apipay "apipay.io/hub/pkg/sdk/go"
	"apipay.io/hub/pkg/sdk/go/apipaytest"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAAAAAAAAA="

func ExampleWebhookVerifier_EventFromRequest() {
	verifier := apipay.NewWebhookVerifier(secret)
	receiver := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := verifier.EventFromRequest(r)
		if err != nil {
			http.Error(w, "refused", http.StatusBadRequest)
			return
		}
		intent, err := event.PaymentIntent()
		if err != nil {
			http.Error(w, "refused", http.StatusBadRequest)
			return
		}
		fmt.Println(event.ID, event.Type, intent.Amount, intent.Currency)
	})

	body := `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","amount":1000,"currency":"EUR"}}}`
	request := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
	request.Header.Set(apipay.SignatureHeader, apipaytest.Sign([]byte(body), time.Now(), secret))
	receiver.ServeHTTP(httptest.NewRecorder(), request)
	// Output: evt_1 payment_intent.succeeded 1000 EUR
}

func TestEventFromRequestRefuses(t *testing.T) {
	t.Parallel()
	body := `{"id":"evt_1"}`
	good := apipaytest.Sign([]byte(body), time.Now(), secret)
	verifier := apipay.NewWebhookVerifier(secret)
	for name, headers := range map[string][]string{"no header": nil, "two headers": {good, good}, "a wrong one": {good + "0"}} {
		request := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
		for _, header := range headers {
			request.Header.Add(apipay.SignatureHeader, header)
		}
		if _, err := verifier.EventFromRequest(request); err == nil || !strings.Contains(err.Error(), "webhook signature") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	large := strings.Repeat("x", 2<<20)
	request := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(large))
	request.Header.Set(apipay.SignatureHeader, apipaytest.Sign([]byte(large), time.Now(), secret))
	if _, err := verifier.EventFromRequest(request); err == nil {
		t.Error("2 MiB were taken for an event")
	}
}
