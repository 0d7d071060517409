package events

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Parse reads an event into the generated message that its type chooses. Members that this build does not know are discarded,
// and optional ones may be absent or null; so a consumer reads what newer producers write. Errors wrap one of this package's.
func Parse(value []byte) (Envelope, error) {
	return parse(value, protojson.UnmarshalOptions{DiscardUnknown: true})
}

// ParseStrict is Parse for the contract tests of producers: members that the contract does not have, names that come twice,
// members that are missing or null without being optional, and integers written as strings are refused too.
func ParseStrict(value []byte) (Envelope, error) {
	event, err := parse(value, protojson.UnmarshalOptions{})
	if err != nil {
		return nil, err
	}
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(value)), value: value}
	if err := d.conform(event.ProtoReflect().Descriptor(), ""); err != nil {
		return nil, err
	}
	return event, nil
}

func parse(value []byte, options protojson.UnmarshalOptions) (Envelope, error) {
	// The header first: its checks are the stricter ones, and they bound what protojson has to do.
	h, err := ParseHeader(value)
	if err != nil {
		return nil, err
	}
	c := byType[h.Type]
	event := c.empty()
	if err := options.Unmarshal(value, event); err != nil {
		return nil, refuse(ErrInvalid, err.Error())
	}
	if kind := c.kindOf(event); kind != c.object {
		return nil, refuse(ErrInvalid, "data.object.object is "+strconv.Quote(kind)+", not "+c.object)
	}
	return event, nil
}

// conform walks over an object beside the descriptor of its message. protojson cannot tell an absent member from a zero one.
func (d *decoder) conform(message protoreflect.MessageDescriptor, path string) error {
	fields := message.Fields()
	found := make(map[protoreflect.Name]bool, fields.Len())
	err := d.members(func(name string) error {
		field := fields.ByJSONName(name)
		if field == nil {
			return refuse(ErrInvalid, path+name+" is not in the contract")
		}
		found[field.Name()] = true
		switch kind := d.PeekKind(); {
		case kind == 'n' && !field.HasOptionalKeyword():
			return refuse(ErrInvalid, path+name+" is null")
		case kind == '"' && isInteger(field):
			return refuse(ErrInvalid, path+name+" is an integer in a string")
		case kind == '{' && isNested(field):
			return d.conform(field.Message(), path+name+".")
		}
		return d.skip()
	})
	if err != nil {
		return err
	}
	for i := range fields.Len() {
		if field := fields.Get(i); !field.HasOptionalKeyword() && !found[field.Name()] {
			return refuse(ErrInvalid, path+field.JSONName()+" is missing")
		}
	}
	return nil
}

func isInteger(field protoreflect.FieldDescriptor) bool {
	return field.Kind() == protoreflect.Int64Kind || field.Kind() == protoreflect.Int32Kind
}

// isNested tells our own messages from maps and from the well-known types, whose JSON does not show their fields.
func isNested(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsMap() && !field.IsList() &&
		field.Message().ParentFile().Package() != "google.protobuf"
}
