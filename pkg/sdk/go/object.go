package apipay

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Extra holds an object's members that this version of the SDK does not know, as they came.
type Extra map[string]json.RawMessage

var errNotAnObject = errors.New("apipay: not a JSON object")

// decodeObject reads an object's members into the struct that into points at, by their exact names (encoding/json would
// also take "Amount" for "amount"), and the others into extra. A member tagged `apipay:"required"` that is missing or null
// is an error: without its id it is no object of the API.
func decodeObject(data []byte, into any, extra *Extra) error {
	var came map[string]json.RawMessage
	if err := json.Unmarshal(data, &came); err != nil {
		return err
	}
	if came == nil {
		return errNotAnObject
	}
	known := membersOf(reflect.TypeOf(into).Elem())
	for _, name := range known.required {
		if raw, ok := came[name]; !ok || string(raw) == "null" {
			return fmt.Errorf("apipay: %q is missing", name)
		}
	}
	value := reflect.ValueOf(into).Elem()
	*extra = nil
	for name, raw := range came {
		index, ok := known.fields[name]
		if !ok {
			if *extra == nil {
				*extra = Extra{}
			}
			(*extra)[name] = raw
			continue
		}
		if err := json.Unmarshal(raw, value.Field(index).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}

// encodeObject writes the struct's members and the extra ones.
func encodeObject(from any, extra Extra) ([]byte, error) {
	known, err := marshal(from)
	if err != nil || len(extra) == 0 {
		return known, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(known, &members); err != nil {
		return nil, err
	}
	for name, raw := range extra {
		members[name] = raw
	}
	return marshal(members)
}

// members are the JSON members that a struct type knows.
type members struct {
	fields   map[string]int // by name, the field's index
	required []string
}

var membersByType sync.Map // reflect.Type -> members

func membersOf(t reflect.Type) members {
	if cached, ok := membersByType.Load(t); ok {
		known, _ := cached.(members)
		return known
	}
	known := members{fields: map[string]int{}}
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		known.fields[name] = i
		if tag.Get("apipay") == "required" {
			known.required = append(known.required, name)
		}
	}
	membersByType.Store(t, known)
	return known
}
