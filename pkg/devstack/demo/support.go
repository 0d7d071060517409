package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"apipay.io/hub/pkg/devstack/stack"
)

// delivery is what the demo reads of admin-api's delivery.
type delivery struct {
	ID           string    `json:"id"`
	EventID      string    `json:"event_id"`
	Status       string    `json:"status"`
	AttemptCount int       `json:"attempt_count"`
	Attempts     []attempt `json:"attempts"`
}

type attempt struct {
	Number     int       `json:"number"`
	Trigger    string    `json:"trigger"`
	Outcome    string    `json:"outcome"`
	StatusCode *int      `json:"status_code"`
	ErrorClass *string   `json:"error_class"`
	StartedAt  time.Time `json:"started_at"`
}

// pollEvery is how often admin-api is asked while something is awaited.
const pollEvery = 200 * time.Millisecond

func (w *walk) watchFailure(ctx context.Context) error {
	if err := w.findDelivery(ctx); err != nil {
		return err
	}
	w.say("delivery %s to %s", w.deliveryID, w.failing.ID)
	final, err := w.await(ctx, "FAILED")
	if err != nil {
		return err
	}
	for _, a := range final.Attempts {
		if a.Outcome != "failed" {
			return fmt.Errorf("attempt %d is %s, not failed", a.Number, a.Outcome)
		}
	}
	if len(final.Attempts) < 2 {
		return fmt.Errorf("the delivery failed after %d attempts, none was a retry", len(final.Attempts))
	}
	return nil
}

func (w *walk) findDelivery(ctx context.Context) error {
	query := url.Values{"tenant": {w.info.Demo.TenantID}, "endpoint": {w.failing.ID}}
	for {
		var list struct {
			Data []delivery `json:"data"`
		}
		if err := w.support(ctx, http.MethodGet, "/admin/v1/webhook-deliveries?"+query.Encode(), nil, &list); err != nil {
			return err
		}
		for _, d := range list.Data {
			if d.EventID == w.record.eventID {
				w.deliveryID = d.ID
				return nil
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("waiting for the delivery to %s: %w", w.failing.ID, err)
		}
	}
}

func (w *walk) retry(ctx context.Context) error {
	w.rx.repair()
	var d delivery
	if err := w.support(ctx, http.MethodPost, "/admin/v1/webhook-deliveries/"+w.deliveryID+"/retry", map[string]any{}, &d); err != nil {
		return err
	}
	w.say("POST .../%s/retry with the support token: %s", w.deliveryID, d.Status)
	if _, err := w.await(ctx, "DELIVERED"); err != nil {
		return err
	}
	hook, err := w.rx.wait(ctx, pathFailing, func(h hook) bool { return h.status == http.StatusOK })
	if err != nil {
		return err
	}
	if err := verify(hook, w.failing.Secret); err != nil {
		return err
	}
	w.say("signature verified, with this endpoint's own secret")
	return nil
}

// await asks for the delivery until it has the status, then prints it with all attempts.
func (w *walk) await(ctx context.Context, status string) (delivery, error) {
	for {
		var d delivery
		if err := w.support(ctx, http.MethodGet, "/admin/v1/webhook-deliveries/"+w.deliveryID, nil, &d); err != nil {
			return d, err
		}
		if d.Status == status {
			for _, a := range d.Attempts {
				since := a.StartedAt.Sub(d.Attempts[0].StartedAt).Seconds()
				w.say("attempt %d  after %4.1f s  %-9s  %-9s  %s", a.Number, since, a.Trigger, a.Outcome, a.reason())
			}
			w.say("%s  %s after %d attempts", d.ID, d.Status, d.AttemptCount)
			return d, nil
		}
		if err := pause(ctx); err != nil {
			return d, fmt.Errorf("the delivery is %s after %d attempts, not %s: %w", d.Status, d.AttemptCount, status, err)
		}
	}
}

func (a attempt) reason() string {
	switch {
	case a.StatusCode != nil:
		return fmt.Sprintf("HTTP %d", *a.StatusCode)
	case a.ErrorClass != nil:
		return *a.ErrorClass
	default:
		return "no answer"
	}
}

// support calls admin-api with the support token.
func (w *walk) support(ctx context.Context, method, path string, request, answer any) error {
	return stack.Call(ctx, method, w.info.URLs.AdminAPI+path, w.info.Demo.Tokens["support"], request, answer)
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollEvery):
		return nil
	}
}
