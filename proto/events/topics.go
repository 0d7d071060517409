// Package events is the contract of every Kafka topic of ApiPay Hub: which topics and event types exist, and how a record's
// value is read. The messages themselves are generated from apipay/events/v1.
//
// [ParseHeader] reads what a router needs at little cost; [Parse] reads the whole event into its generated type and discards
// what it does not know, so that producers may be newer than consumers; [ParseStrict] is for the contract tests of producers.
package events

import (
	"slices"

	"google.golang.org/protobuf/proto"

	eventsv1 "apipay.io/hub/proto/apipay/events/v1"
)

// The topics.
const (
	// TopicOutboundWebhooks carries what merchants are told.
	TopicOutboundWebhooks = "apipay.outbound-webhooks.v1"
	// TopicPaymentEvents carries facts for ledger, risk and analytics.
	TopicPaymentEvents = "apipay.payment-events.v1"
	// TopicAudit carries who did what.
	TopicAudit = "apipay.audit.v1"
)

// The event types, by topic.
const (
	TypePaymentIntentCreated       = "payment_intent.created"
	TypePaymentIntentProcessing    = "payment_intent.processing"
	TypePaymentIntentSucceeded     = "payment_intent.succeeded"
	TypePaymentIntentPaymentFailed = "payment_intent.payment_failed"
	TypePaymentIntentCanceled      = "payment_intent.canceled"
	TypeRefundCreated              = "refund.created"
	TypeRefundSucceeded            = "refund.succeeded"
	TypeRefundFailed               = "refund.failed"
	TypeWebhookEndpointFailing     = "webhook_endpoint.failing"
	TypeWebhookEndpointDisabled    = "webhook_endpoint.disabled"
	TypeWebhookEndpointRecovered   = "webhook_endpoint.recovered"
	TypePing                       = "ping"

	TypePaymentAttemptStarted     = "payment_attempt.started"
	TypePaymentAttemptSucceeded   = "payment_attempt.succeeded"
	TypePaymentAttemptDeclined    = "payment_attempt.declined"
	TypePaymentAttemptNotExecuted = "payment_attempt.not_executed"
	TypePaymentAttemptUnknown     = "payment_attempt.unknown"
	TypeRefundAttemptStarted      = "refund_attempt.started"
	TypeRefundAttemptSucceeded    = "refund_attempt.succeeded"
	TypeRefundAttemptDeclined     = "refund_attempt.declined"
	TypeRefundAttemptNotExecuted  = "refund_attempt.not_executed"
	TypeRefundAttemptUnknown      = "refund_attempt.unknown"

	// TypeAuditRecorded is the only type of TopicAudit: its consumers select by data.object.action, which is an open set.
	TypeAuditRecorded = "audit.recorded"
)

// The values of data.object.object.
const (
	ObjectPaymentIntent   = "payment_intent"
	ObjectRefund          = "refund"
	ObjectWebhookEndpoint = "webhook_endpoint"
	ObjectPaymentAttempt  = "payment_attempt"
	ObjectRefundAttempt   = "refund_attempt"
	ObjectAuditEntry      = "audit_entry"
)

const (
	// APIVersion is what producers write as api_version: the major version of the API that shaped data.object.
	APIVersion = "v1"
	// MaxSize is the largest value of a record, in bytes.
	MaxSize = 256 << 10
)

// Envelope is what the generated messages of all events have in common. A type switch leads to data.object.
type Envelope interface {
	proto.Message
	GetId() string
	GetType() string
	GetCreated() int64
	GetLivemode() bool
	GetApiVersion() string
	GetRequest() *eventsv1.RequestContext
}

// contract says what the events of one kind are made of.
type contract struct {
	topic  string
	object string
	types  []string
	empty  func() Envelope
	// kindOf answers data.object.object, "" without data.object.
	kindOf func(Envelope) string
}

var contracts = []contract{
	{
		topic: TopicOutboundWebhooks, object: ObjectPaymentIntent,
		types: []string{
			TypePaymentIntentCreated, TypePaymentIntentProcessing, TypePaymentIntentSucceeded,
			TypePaymentIntentPaymentFailed, TypePaymentIntentCanceled,
		},
		empty:  func() Envelope { return new(eventsv1.PaymentIntentEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.PaymentIntentEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicOutboundWebhooks, object: ObjectRefund,
		types:  []string{TypeRefundCreated, TypeRefundSucceeded, TypeRefundFailed},
		empty:  func() Envelope { return new(eventsv1.RefundEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.RefundEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicOutboundWebhooks, object: ObjectWebhookEndpoint,
		types:  []string{TypeWebhookEndpointFailing, TypeWebhookEndpointDisabled, TypeWebhookEndpointRecovered},
		empty:  func() Envelope { return new(eventsv1.WebhookEndpointEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.WebhookEndpointEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicOutboundWebhooks, object: ObjectWebhookEndpoint,
		types:  []string{TypePing},
		empty:  func() Envelope { return new(eventsv1.PingEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.PingEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicPaymentEvents, object: ObjectPaymentAttempt,
		types: []string{
			TypePaymentAttemptStarted, TypePaymentAttemptSucceeded, TypePaymentAttemptDeclined,
			TypePaymentAttemptNotExecuted, TypePaymentAttemptUnknown,
		},
		empty:  func() Envelope { return new(eventsv1.PaymentAttemptEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.PaymentAttemptEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicPaymentEvents, object: ObjectRefundAttempt,
		types: []string{
			TypeRefundAttemptStarted, TypeRefundAttemptSucceeded, TypeRefundAttemptDeclined,
			TypeRefundAttemptNotExecuted, TypeRefundAttemptUnknown,
		},
		empty:  func() Envelope { return new(eventsv1.RefundAttemptEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.RefundAttemptEvent).GetData().GetObject().GetObject() },
	},
	{
		topic: TopicAudit, object: ObjectAuditEntry,
		types:  []string{TypeAuditRecorded},
		empty:  func() Envelope { return new(eventsv1.AuditEvent) },
		kindOf: func(e Envelope) string { return e.(*eventsv1.AuditEvent).GetData().GetObject().GetObject() },
	},
}

var byType = func() map[string]*contract {
	index := make(map[string]*contract)
	for i := range contracts {
		for _, eventType := range contracts[i].types {
			index[eventType] = &contracts[i]
		}
	}
	return index
}()

// Topics answers every topic.
func Topics() []string {
	return []string{TopicOutboundWebhooks, TopicPaymentEvents, TopicAudit}
}

// Types answers the event types of one topic, nil for a topic that is none of ours.
func Types(topic string) []string {
	var types []string
	for _, c := range contracts {
		if c.topic == topic {
			types = append(types, c.types...)
		}
	}
	return slices.Clip(types)
}

// TopicOf answers the topic that events of this type belong to, and whether the type is known.
func TopicOf(eventType string) (string, bool) {
	c, ok := byType[eventType]
	if !ok {
		return "", false
	}
	return c.topic, true
}
