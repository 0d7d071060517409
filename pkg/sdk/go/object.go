package apipay

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
)

// Extra holds an object's members that this version of the SDK does not know, as they came.
type Extra map[string]json.RawMessage

var errNotAnObject = errors.New("apipay: not a JSON object")

// decodeObject reads an object's members into the struct that into points at, by their exact names (encoding/json would
// also take "Amount" for "amount"), and the others into extra.
func decodeObject(data []byte, into any, extra *Extra) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	if members == nil {
		return errNotAnObject
	}
	fields := fieldsOf(reflect.TypeOf(into).Elem())
	value := reflect.ValueOf(into).Elem()
	*extra = nil
	for name, raw := range members {
		index, ok := fields[name]
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

var fieldsByType sync.Map // reflect.Type -> map[string]int

func fieldsOf(t reflect.Type) map[string]int {
	if known, ok := fieldsByType.Load(t); ok {
		fields, _ := known.(map[string]int)
		return fields
	}
	fields := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = i
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}
