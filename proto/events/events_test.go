package events_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	eventsv1 "apipay.io/hub/proto/apipay/events/v1"
	"apipay.io/hub/proto/events"
)

const (
	eventID    = "evt_01kdqx7h2ge9wbe8zrb7b8s3mq"
	endpointID = "we_01kdqx7h2ge9wbe8zrb7b8s3mr"
)

// example reads testdata/<object>.json, one complete event of each kind, and gives it the type.
func example(t testing.TB, eventType string) []byte {
	t.Helper()
	kind, _, _ := strings.Cut(eventType, ".")
	value, err := os.ReadFile("testdata/" + kind + ".json")
	require.NoError(t, err)
	return edit(t, value, func(event map[string]any) { event["type"] = eventType })
}

// edit decodes an event, lets change at it and encodes it again.
func edit(t testing.TB, value []byte, change func(event map[string]any)) []byte {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(value)))
	decoder.UseNumber()
	var event map[string]any
	require.NoError(t, decoder.Decode(&event))
	change(event)
	value, err := json.Marshal(event)
	require.NoError(t, err)
	return value
}

func object(event map[string]any) map[string]any {
	return event["data"].(map[string]any)["object"].(map[string]any)
}

func allTypes() []string {
	var types []string
	for _, topic := range events.Topics() {
		types = append(types, events.Types(topic)...)
	}
	return types
}

func TestTypes(t *testing.T) {
	t.Parallel()
	require.Len(t, allTypes(), 23)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(allTypes()))), 23, "no type twice")
	require.Equal(t, []string{
		"payment_intent.created", "payment_intent.processing", "payment_intent.succeeded", "payment_intent.payment_failed",
		"payment_intent.canceled", "refund.created", "refund.succeeded", "refund.failed", "webhook_endpoint.failing",
		"webhook_endpoint.disabled", "webhook_endpoint.recovered", "ping",
	}, events.Types(events.TopicOutboundWebhooks))
	require.Nil(t, events.Types("apipay.other.v1"))
	for _, topic := range events.Topics() {
		for _, eventType := range events.Types(topic) {
			got, ok := events.TopicOf(eventType)
			require.True(t, ok)
			require.Equal(t, topic, got)
		}
	}
	_, ok := events.TopicOf("payment_intent")
	require.False(t, ok)
}

func TestREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, eventType := range allTypes() {
		require.Contains(t, string(readme), "`"+eventType+"`")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, eventType := range allTypes() {
		t.Run(eventType, func(t *testing.T) {
			t.Parallel()
			value := example(t, eventType)
			before := string(value)

			h, err := events.ParseHeader(value)
			require.NoError(t, err)
			require.Equal(t, eventID, h.ID)
			require.Equal(t, eventType, h.Type)
			require.Equal(t, int64(1764500000), h.Created)
			require.True(t, h.Livemode)
			require.Equal(t, events.APIVersion, h.APIVersion)
			if eventType == events.TypePing || strings.HasPrefix(eventType, "webhook_endpoint.") {
				require.Equal(t, endpointID, h.EndpointID)
			} else {
				require.Empty(t, h.EndpointID)
			}

			strict, err := events.ParseStrict(value)
			require.NoError(t, err)
			require.Equal(t, h.ID, strict.GetId())
			require.Equal(t, h.Type, strict.GetType())
			require.Equal(t, h.Created, strict.GetCreated())
			require.True(t, strict.GetLivemode())
			require.Equal(t, h.APIVersion, strict.GetApiVersion())
			require.Equal(t, "req_01kdqx7h2ge9wbe8zrb7b8s3ms", strict.GetRequest().GetId())

			event, err := events.Parse(value)
			require.NoError(t, err)
			require.True(t, proto.Equal(strict, event))
			require.Equal(t, before, string(value), "the bytes of the record are never touched")
		})
	}
}

// Every member of the examples must survive, so no example is read as an empty object.
func TestParse_NothingIsLost(t *testing.T) {
	t.Parallel()
	for _, eventType := range allTypes() {
		value := example(t, eventType)
		event, err := events.Parse(value)
		require.NoError(t, err)
		printed, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(event)
		require.NoError(t, err)
		want, got := members(t, value), members(t, printed)
		require.Equal(t, want, got, eventType)
	}
}

// members lists every member but the nulls, with its value; int64 is printed by protojson as a string.
func members(t *testing.T, value []byte) map[string]string {
	t.Helper()
	flat := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				walk(path+"/"+name, member)
			}
		case []any:
			for _, member := range v {
				walk(path+"[]", member)
			}
		case nil:
		default:
			encoded, err := json.Marshal(v)
			require.NoError(t, err)
			flat[path] = strings.Trim(string(encoded), `"`)
		}
	}
	edit(t, value, func(event map[string]any) { walk("", event) })
	return flat
}

func TestParse_FieldsReachTheirGetters(t *testing.T) {
	t.Parallel()
	event, err := events.Parse(example(t, events.TypePaymentIntentPaymentFailed))
	require.NoError(t, err)
	intent := event.(*eventsv1.PaymentIntentEvent).GetData().GetObject()
	require.Equal(t, int64(99_999_999), intent.GetAmount())
	require.Equal(t, map[string]string{"order": "ø 7", "": "empty"}, intent.GetMetadata())
	require.Equal(t, "card_declined", intent.GetLastPaymentError().GetCode())
	require.Equal(t, "insufficient_funds", intent.GetLastPaymentError().GetDeclineCode())
	require.Nil(t, intent.PaymentMethod, "null is unset, not empty")
	require.NotNil(t, intent.Description)
}

func TestParse_OptionalMembers(t *testing.T) {
	t.Parallel()
	for _, eventType := range allTypes() {
		full, err := events.Parse(example(t, eventType))
		require.NoError(t, err)
		var optional []string
		fields := objectMessage(full).Descriptor().Fields()
		for i := range fields.Len() {
			if fields.Get(i).HasOptionalKeyword() {
				optional = append(optional, fields.Get(i).JSONName())
			}
		}
		null := edit(t, example(t, eventType), func(event map[string]any) {
			event["request"] = nil
			for _, name := range optional {
				object(event)[name] = nil
			}
		})
		absent := edit(t, null, func(event map[string]any) {
			delete(event, "request")
			maps.DeleteFunc(object(event), func(name string, _ any) bool { return slices.Contains(optional, name) })
		})
		fromNull, err := events.ParseStrict(null)
		require.NoError(t, err, eventType)
		fromAbsent, err := events.ParseStrict(absent)
		require.NoError(t, err, eventType)
		require.True(t, proto.Equal(fromNull, fromAbsent), eventType)
	}
}

func objectMessage(event events.Envelope) protoreflect.Message {
	data := event.ProtoReflect()
	data = data.Get(data.Descriptor().Fields().ByName("data")).Message()
	return data.Get(data.Descriptor().Fields().ByName("object")).Message()
}

// A newer producer may add members anywhere.
func TestParse_DiscardsUnknownMembers(t *testing.T) {
	t.Parallel()
	for _, eventType := range allTypes() {
		known := example(t, eventType)
		newer := edit(t, known, func(event map[string]any) {
			event["account"] = map[string]any{"deep": []any{1, nil, "x"}}
			event["data"].(map[string]any)["previous_attributes"] = map[string]any{"status": "processing"}
			object(event)["capture_method"] = "manual"
		})
		want, err := events.Parse(known)
		require.NoError(t, err)
		got, err := events.Parse(newer)
		require.NoError(t, err)
		require.True(t, proto.Equal(want, got), eventType)
		_, err = events.ParseStrict(newer)
		require.ErrorIs(t, err, events.ErrInvalid, eventType)
	}
}

// Both directions of the JSON mapping use one name: that of the field.
func TestJSONNamesAreFieldNames(t *testing.T) {
	t.Parallel()
	checked := 0
	var check func(messages protoreflect.MessageDescriptors)
	check = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			message := messages.Get(i)
			if message.IsMapEntry() {
				continue
			}
			for j := range message.Fields().Len() {
				field := message.Fields().Get(j)
				require.Equal(t, string(field.Name()), field.JSONName(), field.FullName())
				checked++
			}
			check(message.Messages())
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("apipay.events.v1", func(file protoreflect.FileDescriptor) bool {
		check(file.Messages())
		return true
	})
	require.Greater(t, checked, 100)
}
