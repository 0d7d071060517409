// A receiver of ApiPay's webhooks: it verifies each delivery and handles each event once.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	apipay "apipay.io/hub/pkg/sdk/go"
)

func main() {
	// During a rotation: apipay.NewWebhookVerifier(newSecret, oldSecret).
	verifier := apipay.NewWebhookVerifier(os.Getenv("APIPAY_WEBHOOK_SECRET"))
	var seen sync.Map // a table with a unique event id, in a real receiver

	http.HandleFunc("POST /hooks", func(w http.ResponseWriter, r *http.Request) {
		event, err := verifier.EventFromRequest(r)
		var forged *apipay.SignatureVerificationError
		if errors.As(err, &forged) {
			http.Error(w, forged.Error(), http.StatusBadRequest)
			return
		}
		if err != nil {
			http.Error(w, "not an event", http.StatusBadRequest)
			return
		}
		// The same event can come twice, with the same id.
		if _, again := seen.LoadOrStore(event.ID, true); !again {
			fmt.Println(event.ID, event.Type)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Addr: "127.0.0.1:4242", ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
