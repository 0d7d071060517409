package payments

import (
	"apipay.io/hub/pkg/outbox"
	"apipay.io/hub/pkg/postgres"
	"apipay.io/hub/proto/events"
)

// told collects the events of one transaction, in the order in which they happened. Each event about an object raises
// that object's version by one.
type told struct {
	scope   postgres.Scope
	request outbox.Request
	list    []outbox.Event
}

func (t *told) add(topic, eventType string, object any) {
	t.list = append(t.list, outbox.Event{
		TenantID: t.scope.TenantID,
		Livemode: t.scope.Livemode,
		Topic:    topic,
		Type:     eventType,
		Object:   object,
		Request:  t.request,
	})
}

// intentCreated tells of the first version.
func (t *told) intentCreated(p intent) {
	t.add(outbox.TopicWebhooks, events.TypePaymentIntentCreated, p.object())
}

// intent tells of the next version.
func (t *told) intent(eventType string, p *intent) {
	p.Version++
	t.add(outbox.TopicWebhooks, eventType, p.object())
}

// refund tells of the next version; a refund begins at version 0, before anything was told of it.
func (t *told) refund(eventType string, r *refund) {
	r.Version++
	t.add(outbox.TopicWebhooks, eventType, r.object())
}

// attempt tells of the attempt in its present state and version.
func (t *told) attempt(a attempt) {
	t.add(outbox.TopicPayments, attemptEvents[a.Kind][a.Status], a.object(t.scope.Livemode))
}

var attemptEvents = map[string]map[AttemptStatus]string{
	kindCharge: {
		AttemptStarted:     events.TypePaymentAttemptStarted,
		AttemptSucceeded:   events.TypePaymentAttemptSucceeded,
		AttemptDeclined:    events.TypePaymentAttemptDeclined,
		AttemptNotExecuted: events.TypePaymentAttemptNotExecuted,
		AttemptUnknown:     events.TypePaymentAttemptUnknown,
	},
	kindRefund: {
		AttemptStarted:     events.TypeRefundAttemptStarted,
		AttemptSucceeded:   events.TypeRefundAttemptSucceeded,
		AttemptDeclined:    events.TypeRefundAttemptDeclined,
		AttemptNotExecuted: events.TypeRefundAttemptNotExecuted,
		AttemptUnknown:     events.TypeRefundAttemptUnknown,
	},
}
