package dispatch

import (
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/proto/events"
)

// Why a record is quarantined, beside the words of events.Reason.
const (
	reasonTenantKey     = "invalid_tenant_key"
	reasonUnknownTenant = "unknown_tenant"
	reasonWrongTopic    = "wrong_topic"
	reasonMismatch      = "header_mismatch"
	reasonExpired       = "expired"
	reasonInFuture      = "id_in_future"
	reasonUnprocessable = "unprocessable"
)

// arrival is a record that can be processed.
type arrival struct {
	record      kafka.Message
	eventID     uuid.UUID
	tenantID    uuid.UUID
	eventType   string
	livemode    bool
	created     int64
	traceparent *string
	// about is the endpoint that a ping is for, or that a webhook_endpoint.* tells of.
	about uuid.NullUUID
}

// refusal is a record that never can be.
type refusal struct {
	record   kafka.Message
	tenantID uuid.NullUUID
	reason   string
	detail   string
}

// read judges a record by itself, without the database.
func read(record kafka.Message) (arrival, *refusal) {
	refuse := func(tenant uuid.NullUUID, reason, detail string) (arrival, *refusal) {
		return arrival{}, &refusal{record: record, tenantID: tenant, reason: reason, detail: detail}
	}
	key := string(record.Key)
	tenantID, err := uuid.Parse(key)
	tenant := uuid.NullUUID{UUID: tenantID, Valid: err == nil && tenantID.String() == key}
	header, err := events.ParseHeader(record.Value)
	if err != nil {
		return refuse(tenant, events.Reason(err), err.Error())
	}
	if !tenant.Valid {
		return refuse(tenant, reasonTenantKey, "the key is not a tenant's UUID in lower case")
	}
	if topic, _ := events.TopicOf(header.Type); topic != events.TopicOutboundWebhooks {
		return refuse(tenant, reasonWrongTopic, header.Type+" does not belong to this topic")
	}
	a := arrival{record: record, tenantID: tenantID, eventType: header.Type, livemode: header.Livemode, created: header.Created}
	if a.eventID, err = id.Parse(id.Event, header.ID); err != nil || a.eventID.Version() != 7 {
		return refuse(tenant, events.Reason(events.ErrInvalid), "id is not a UUIDv7")
	}
	if header.EndpointID != "" {
		about, err := id.Parse(id.Endpoint, header.EndpointID)
		if err != nil {
			return refuse(tenant, events.Reason(events.ErrInvalid), "data.object.id is not the id of an endpoint")
		}
		a.about = uuid.NullUUID{UUID: about, Valid: true}
	}
	for _, h := range record.Headers {
		switch h.Key {
		case "event-id":
			if string(h.Value) != header.ID {
				return refuse(tenant, reasonMismatch, "the header event-id is not the envelope's id")
			}
		case "event-type":
			if string(h.Value) != header.Type {
				return refuse(tenant, reasonMismatch, "the header event-type is not the envelope's type")
			}
		case "traceparent":
			a.traceparent = traceparent(string(h.Value))
		}
	}
	return a, nil
}

// traceparent is the text if it is one of W3C trace context, version 00.
func traceparent(text string) *string {
	if len(text) != 55 || strings.Trim(text, "0123456789abcdef-") != "" {
		return nil
	}
	return &text
}

// weekOf is the Monday, in UTC, of the week in whose partition the event lies.
func weekOf(eventID uuid.UUID) time.Time {
	at := id.Time(eventID).UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	return day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
}
