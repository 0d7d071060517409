package api

import (
	"reflect"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"

	"apipay.io/hub/pkg/httpapi"
)

// modeler turns the types that are answered and taken into schemas, each named type once.
type modeler struct{ schemas openapi3.Schemas }

func (m modeler) answer(of any) *openapi3.SchemaRef { return m.ref(reflect.TypeOf(of), false) }

func (m modeler) request(of any) *openapi3.SchemaRef { return m.ref(reflect.TypeOf(of), true) }

var (
	timeType    = reflect.TypeFor[time.Time]()
	rawType     = reflect.TypeFor[jsontext.Value]()
	integerType = reflect.TypeFor[httpapi.Integer]()
)

// ref is the schema of a type; structs with a name in schemaNames become components. In an answer every member is
// there, but for those that say omitzero; in a request those are that say required.
func (m modeler) ref(t reflect.Type, request bool) *openapi3.SchemaRef {
	inline := func(s *openapi3.Schema) *openapi3.SchemaRef { return openapi3.NewSchemaRef("", s) }
	switch {
	case t == timeType:
		return inline(openapi3.NewDateTimeSchema())
	case t == rawType:
		return inline(openapi3.NewSchema().WithNullable())
	case t == integerType:
		return inline(openapi3.NewIntegerSchema())
	case strings.HasPrefix(t.Name(), "Optional["):
		value, _ := t.FieldByName("Value")
		return nullable(m.ref(value.Type, request))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(m.ref(t.Elem(), request))
	case reflect.String:
		return inline(openapi3.NewStringSchema())
	case reflect.Bool:
		return inline(openapi3.NewBoolSchema())
	case reflect.Int, reflect.Int64:
		return inline(openapi3.NewIntegerSchema())
	case reflect.Float64:
		return inline(openapi3.NewFloat64Schema())
	case reflect.Slice:
		list := openapi3.NewArraySchema()
		list.Items = m.ref(t.Elem(), request)
		return inline(list)
	case reflect.Map:
		object := openapi3.NewObjectSchema()
		object.AdditionalProperties = openapi3.AdditionalProperties{Schema: m.ref(t.Elem(), request)}
		return inline(object)
	case reflect.Struct:
		return m.object(t, request)
	}
	panic("no schema for " + t.String())
}

func nullable(ref *openapi3.SchemaRef) *openapi3.SchemaRef {
	if ref.Ref != "" {
		return openapi3.NewSchemaRef("", &openapi3.Schema{AllOf: openapi3.SchemaRefs{ref}, Nullable: true})
	}
	ref.Value.Nullable = true
	return ref
}

func (m modeler) object(t reflect.Type, request bool) *openapi3.SchemaRef {
	name := schemaNames[t]
	if known, ok := m.schemas[name]; ok {
		return openapi3.NewSchemaRef("#/components/schemas/"+name, known.Value)
	}
	object := openapi3.NewObjectSchema()
	object.Properties = openapi3.Schemas{}
	if name != "" {
		m.schemas[name] = openapi3.NewSchemaRef("", object)
	}
	for i := range t.NumField() {
		field := t.Field(i)
		member, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		ref := m.ref(field.Type, request)
		if values := enumerations[name+"."+member]; values != nil && ref.Ref == "" {
			for _, value := range values {
				ref.Value.Enum = append(ref.Value.Enum, value)
			}
			if ref.Value.Nullable {
				ref.Value.Enum = append(ref.Value.Enum, nil)
			}
		}
		object.Properties[member] = ref
		asked := strings.Contains(field.Tag.Get("api"), "required")
		if (request && asked) || (!request && !strings.Contains(options, "omitzero")) {
			object.Required = append(object.Required, member)
		}
	}
	if request {
		object.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
	}
	if name == "" {
		return openapi3.NewSchemaRef("", object)
	}
	return openapi3.NewSchemaRef("#/components/schemas/"+name, object)
}

var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[tenantView]():         "Tenant",
	reflect.TypeFor[keyView]():            "ApiKey",
	reflect.TypeFor[endpointView]():       "WebhookEndpoint",
	reflect.TypeFor[endpointHealthView](): "EndpointHealth",
	reflect.TypeFor[healthHour]():         "HealthHour",
	reflect.TypeFor[deliveryView]():       "WebhookDelivery",
	reflect.TypeFor[attemptView]():        "WebhookAttempt",
	reflect.TypeFor[eventView]():          "Event",
	reflect.TypeFor[eventEndpoint]():      "EventEndpoint",
	reflect.TypeFor[recoveryView]():       "Recovery",
	reflect.TypeFor[recoveryRequest]():    "RecoveryRequest",
	reflect.TypeFor[intentView]():         "PaymentIntent",
	reflect.TypeFor[refundView]():         "Refund",
	reflect.TypeFor[paymentAttemptView](): "PaymentAttempt",
	reflect.TypeFor[topicLag]():           "OutboxTopic",
	reflect.TypeFor[parkedView]():         "ParkedEvent",
	reflect.TypeFor[quarantinedView]():    "QuarantinedRecord",
	reflect.TypeFor[auditLogView]():       "AuditEntry",
	reflect.TypeFor[endpointChange]():     "WebhookEndpointChange",
}

var enumerations = map[string][]string{
	"WebhookDelivery.status": deliveryStatuses,
	"WebhookAttempt.trigger": {"scheduled", "manual", "recovery"},
	"WebhookAttempt.outcome": {"succeeded", "failed", "superseded", "lost"},
	"WebhookEndpoint.status": {statusEnabled, statusDisabled},
	"Recovery.status":        {"pending", "running", "done", "canceled"},
	"PaymentAttempt.status":  {"started", "succeeded", "declined", "not_executed", "unknown"},
	"PaymentAttempt.kind":    {"charge", "refund"},
	"AuditEntry.role":        {"viewer", "support", "admin", "merchant", "system"},
}
