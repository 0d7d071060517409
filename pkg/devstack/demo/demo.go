// Package demo shows the hub's main job end to end, on a stack that it starts and stops: a payment becomes a signed webhook,
// and support sends a failed one again.
package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"apipay.io/hub/pkg/devstack/stack"
)

const (
	eventType = "payment_intent.succeeded"
	topic     = "apipay.outbound-webhooks.v1"
	// description marks the endpoints of this program, so that a run finds those that a killed run left.
	description = "made by `make demo`"
	// retrySchedule is what the demo can wait for; production waits from a minute to half a day.
	retrySchedule = "1s,1s,1s,1s,1s"
	stepTimeout   = 60 * time.Second
)

// Run starts a stack, walks through the demo, tells every step to out, and stops the stack. It is an error when anything
// that was to be seen was not.
func Run(ctx context.Context, cfg stack.Config, out io.Writer) error {
	const schedule = "APIPAY_WEBHOOK_RETRY_SCHEDULE"
	if os.Getenv(schedule) == "" {
		cfg.Environ = append(cfg.Environ, schedule+"="+retrySchedule)
	}
	fmt.Fprintln(out, "ApiPay Hub: a payment becomes a signed webhook")
	s, err := stack.Up(ctx, cfg, indented{out})
	if err != nil {
		return err
	}
	defer func() {
		s.Stop()
		fmt.Fprintln(out, "\nStopped everything; the data stays until `make clean`.")
	}()
	rx, err := listen()
	if err != nil {
		return err
	}
	defer rx.close()
	info := s.Info()
	w := &walk{out: out, info: info, rx: rx}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("step %d: %w; the logs are in %s", w.step, err, stack.LogDir(cfg))
	}
	fmt.Fprintln(out, "\nDone: everything above was seen on the wire or read back through the APIs.")
	return nil
}

// walk is one run through the steps.
type walk struct {
	out  io.Writer
	info stack.Info
	rx   *receiver
	step int

	good, failing endpoint
	intentID      string
	tail          *topicTail
	record        record
	deliveryID    string
}

type endpoint struct {
	ID          string `json:"id"`
	URL         string `json:"url"`
	Secret      string `json:"secret"`
	Description string `json:"description"`
}

func (w *walk) run(ctx context.Context) error {
	w.say("Tenant %s, payment-api %s", w.info.Demo.TenantID, w.info.URLs.PaymentAPI)
	if err := w.removeEndpoints(ctx); err != nil {
		return err
	}
	defer func() {
		// Left in place they would be sent to for days, with nobody there.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = w.removeEndpoints(cleanup)
	}()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"Two webhook endpoints: one works, one answers 500", w.makeEndpoints},
		{"A payment intent is created and confirmed", w.pay},
		{"Its event is on the topic", w.readTopic},
		{"The webhook arrives, signed", w.receive},
		{"The failing endpoint is tried until the schedule is used up", w.watchFailure},
		{"The receiver is repaired, and support sends the webhook again", w.retry},
	} {
		w.step++
		fmt.Fprintf(w.out, "\n%d. %s\n", w.step, step.title)
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		err := step.do(bounded)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) makeEndpoints(ctx context.Context) error {
	for _, make := range []struct {
		path string
		to   *endpoint
	}{{pathGood, &w.good}, {pathFailing, &w.failing}} {
		request := map[string]any{
			"url": w.rx.url + make.path, "enabled_events": []string{eventType}, "description": description,
		}
		if err := w.merchant(ctx, http.MethodPost, "/v1/webhook-endpoints", request, make.to); err != nil {
			return err
		}
		if make.to.Secret == "" {
			return errors.New("the new endpoint came without its secret")
		}
		w.say("%s  %s", make.to.ID, make.to.URL)
	}
	return nil
}

func (w *walk) pay(ctx context.Context) error {
	var err error
	if w.tail, err = tailTopic(ctx, w.info.Kafka.Brokers[0], topic); err != nil {
		return fmt.Errorf("looking at the topic: %w", err)
	}
	var intent struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	create := map[string]any{"amount": 4200, "currency": "EUR", "description": "Order 1001", "payment_method": "pm_card_visa"}
	if err := w.merchant(ctx, http.MethodPost, "/v1/payment-intents", create, &intent); err != nil {
		return err
	}
	w.intentID = intent.ID
	w.say("%s  EUR 42.00  %s", intent.ID, intent.Status)
	if err := w.merchant(ctx, http.MethodPost, "/v1/payment-intents/"+intent.ID+"/confirm", map[string]any{}, &intent); err != nil {
		return err
	}
	w.say("%s  EUR 42.00  %s", intent.ID, intent.Status)
	if intent.Status != "succeeded" {
		return fmt.Errorf("the confirmed intent is %s, not succeeded", intent.Status)
	}
	return nil
}

func (w *walk) readTopic(ctx context.Context) error {
	var err error
	if w.record, err = w.tail.find(ctx, eventType, w.intentID); err != nil {
		return err
	}
	w.say("event %s  %s", w.record.eventID, eventType)
	w.say("topic %s  partition %d  offset %d", topic, w.record.partition, w.record.offset)
	return nil
}

func (w *walk) receive(ctx context.Context) error {
	hook, err := w.rx.wait(ctx, pathGood, func(h hook) bool { return h.header.Get("webhook-id") == w.record.eventID })
	if err != nil {
		return err
	}
	for _, name := range []string{
		"Content-Type", "User-Agent", "ApiPay-Signature", "webhook-id", "webhook-timestamp", "webhook-signature", "Traceparent",
	} {
		if value := hook.header.Get(name); value != "" {
			w.say("%s: %s", name, value)
		}
	}
	if err := verify(hook, w.good.Secret); err != nil {
		return err
	}
	w.say("signature verified (ApiPay-Signature with stripe-go, the others with the Standard Webhooks library)")
	if !bytes.Equal(hook.body, w.record.value) {
		return errors.New("the webhook's body is not the record's value byte for byte")
	}
	w.say("the body is the record's value, byte for byte (%d bytes)", len(hook.body))
	return nil
}

// merchant calls payment-api with the demo tenant's test key.
func (w *walk) merchant(ctx context.Context, method, path string, request, answer any) error {
	return stack.Call(ctx, method, w.info.URLs.PaymentAPI+path, w.info.Demo.TestKey, request, answer, "Idempotency-Key", rand.Text())
}

func (w *walk) removeEndpoints(ctx context.Context) error {
	var list struct {
		Data []endpoint `json:"data"`
	}
	if err := stack.Call(ctx, http.MethodGet, w.info.URLs.PaymentAPI+"/v1/webhook-endpoints?limit=100", w.info.Demo.TestKey, nil, &list); err != nil {
		return err
	}
	for _, found := range list.Data {
		if found.Description != description {
			continue
		}
		path := w.info.URLs.PaymentAPI + "/v1/webhook-endpoints/" + found.ID
		if err := stack.Call(ctx, http.MethodDelete, path, w.info.Demo.TestKey, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) say(format string, args ...any) { fmt.Fprintf(w.out, "   "+format+"\n", args...) }

// indented sets the stack's progress off from the steps.
type indented struct{ io.Writer }

func (w indented) Write(line []byte) (int, error) {
	if _, err := fmt.Fprintf(w.Writer, "   %s", line); err != nil {
		return 0, err
	}
	return len(line), nil
}
