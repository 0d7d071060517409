package httpapi

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Integer takes a plain JSON integer token: 1000, but not 1000.0, 1e3, "1000"
// or -0, which are 400. A token too large for int64 is kept as OutOfRange,
// with Value at the nearest end, so that the handler answers 422 by the same
// range check as for every other value.
type Integer struct {
	Value      int64
	OutOfRange bool
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (n *Integer) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '0' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return errNotInteger
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	text := string(raw)
	if text == "-0" {
		return errNotInteger
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (i > 0 || c != '-') {
			return errNotInteger
		}
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		value = math.MaxInt64
		if text[0] == '-' {
			value = math.MinInt64
		}
	}
	*n = Integer{Value: value, OutOfRange: err != nil}
	return nil
}

// MarshalJSONTo implements [json.MarshalerTo].
func (n Integer) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.Int(n.Value))
}

// In reports whether the integer lies in [low, high].
func (n Integer) In(low, high int64) bool {
	return !n.OutOfRange && n.Value >= low && n.Value <= high
}

// Optional is a member that can be absent, null or a value, which PATCH tells
// apart. The zero value is absent.
type Optional[T any] struct {
	Set   bool // the member was there, as null or as a value
	Null  bool // it was null
	Value T
}

// Present reports whether there is a value.
func (o Optional[T]) Present() bool { return o.Set && !o.Null }

// Or returns the value, or the fallback if the member is absent or null.
func (o Optional[T]) Or(fallback T) T {
	if o.Present() {
		return o.Value
	}
	return fallback
}

// Ptr returns the value, or nil if the member is absent or null.
func (o Optional[T]) Ptr() *T {
	if o.Present() {
		return &o.Value
	}
	return nil
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom]; it runs only if the
// member is there.
func (o *Optional[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = Optional[T]{Set: true}
	if dec.PeekKind() == 'n' {
		o.Null = true
		_, err := dec.ReadToken()
		return err
	}
	return json.UnmarshalDecode(dec, &o.Value)
}

func (*Optional[T]) holdsNull() {}

// StringMap is an object whose values are strings, such as metadata. A value of
// another type does not fail the decoding: its name is kept, so that the handler
// answers 422 and names each of them.
type StringMap struct {
	Values map[string]string
	// NotStrings are the names whose value is no string, in the order they were sent.
	NotStrings []string
}

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (m *StringMap) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return errNotObject
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*m = StringMap{Values: map[string]string{}}
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String() // before the next read takes its bytes
		if dec.PeekKind() != '"' {
			m.NotStrings = append(m.NotStrings, name)
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if token, err = dec.ReadToken(); err != nil {
			return err
		}
		m.Values[name] = token.String()
	}
	_, err := dec.ReadToken()
	return err
}
