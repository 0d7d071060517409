package httpapi

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxJSONDepth bounds nesting. The deepest request of the APIs has three
// levels.
const maxJSONDepth = 32

// errNull marks a null where the target cannot hold one.
var errNull = errors.New("null is not allowed here")

// errNotInteger marks a number that is not a plain integer token.
var errNotInteger = errors.New("not a plain integer")

// errNotObject marks what is no object where a [StringMap] is due.
var errNotObject = errors.New("not an object")

// DecodeStrict decodes one JSON object into v, refusing what lenient decoders
// hide: duplicate, unknown and other-case names, trailing data, invalid UTF-8,
// lone surrogates, U+0000 in any string or name, null where the target is
// neither a pointer nor an [Optional], numbers that are not plain integers
// where an integer is due, and more than 32 levels.
//
// A field tagged `api:"required"` must be present; one tagged `api:"nonnull"`
// must not be null though its type could hold it. Errors are [*Problem]: 400,
// naming the JSON pointer; 422 for an integer that the target type cannot hold.
func DecodeStrict[T any](raw []byte, v *T) error {
	if len(raw) == 0 {
		return Invalid(CodeInvalidRequest, "", "The body is empty; a JSON object is due.")
	}
	if err := checkSyntax(raw); err != nil {
		return err
	}
	if kind := jsontext.Value(raw).Kind(); kind != '{' && isObject(reflect.TypeFor[T]()) {
		return Invalid(CodeInvalidRequest, "", "The body must be a JSON object, not "+kindName(kind)+".")
	}
	if err := json.Unmarshal(raw, v, strictOptions); err != nil {
		return decodeProblem(err)
	}
	return checkMembers(reflect.TypeFor[T](), raw, "")
}

// Canonical re-encodes JSON so that two texts with the same meaning give the
// same bytes: sorted names, no whitespace, one escape form (RFC 8785). Unlike
// the RFC it keeps integers as written, because rounding them to doubles would
// give two different large integers one fingerprint.
func Canonical(raw []byte) ([]byte, error) {
	v := jsontext.Value(raw).Clone()
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, fmt.Errorf("canonicalizing JSON: %w", err)
	}
	return v, nil
}

// EncodeJSON is how both APIs encode answers: nil slices are [], nil maps {},
// and map keys sorted, so that equal values give equal bytes.
func EncodeJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return b, nil
}

// checkSyntax reads every token once, so that even members which the target
// does not decode obey the rules.
func checkSyntax(raw []byte) error {
	dec := jsontext.NewDecoder(strings.NewReader(string(raw)))
	for first := true; first || dec.StackDepth() > 0; first = false {
		tok, err := dec.ReadToken()
		if err != nil {
			return syntaxProblem(raw, string(dec.StackPointer()), err)
		}
		if dec.StackDepth() > maxJSONDepth {
			return Invalid(CodeInvalidRequest, string(dec.StackPointer()),
				fmt.Sprintf("The body is nested more than %d levels deep.", maxJSONDepth))
		}
		if tok.Kind() == '"' && strings.ContainsRune(tok.String(), 0) {
			return Invalid(CodeInvalidRequest, string(dec.StackPointer()), "U+0000 is not allowed in text.")
		}
	}
	if rest := strings.Trim(string(raw[dec.InputOffset():]), " \t\r\n"); rest != "" {
		return Invalid(CodeInvalidRequest, "", "There is data after the JSON value.")
	}
	return nil
}

// syntaxProblem takes the pointer of the last good token too: for {"a":01} it
// is nearer to the fault than the decoder's own.
func syntaxProblem(raw []byte, lastGood string, err error) error {
	pointer, detail := "", "The body is not valid JSON."
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if pointer = string(se.JSONPointer); strings.HasPrefix(lastGood, pointer) {
			pointer = lastGood
		}
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			detail = "A name appears twice in one object."
		case !utf8.Valid(raw):
			detail = "The body is not valid UTF-8."
		default:
			detail = fmt.Sprintf("The body is not valid JSON at byte %d.", se.ByteOffset)
		}
	}
	if !utf8.ValidString(pointer) {
		pointer = strings.ToValidUTF8(pointer, "\uFFFD")
	}
	return Invalid(CodeInvalidRequest, pointer, detail).WithCause(err)
}

// strictOptions are shared by every decode; the null check sees each value
// before its decoder does.
var strictOptions = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v any) error {
		if dec.PeekKind() == 'n' && !holdsNull(reflect.TypeOf(v)) {
			return errNull
		}
		return errors.ErrUnsupported // go on with the type's own decoder
	})),
)

// nullable marks types that take null themselves.
type nullable interface{ holdsNull() }

var nullableType = reflect.TypeFor[nullable]()

// holdsNull takes the type of the pointer that a value is decoded into.
func holdsNull(ptr reflect.Type) bool {
	if ptr == nil || ptr.Kind() != reflect.Pointer {
		return true
	}
	if ptr.Implements(nullableType) {
		return true
	}
	switch t := ptr.Elem(); t.Kind() {
	case reflect.Pointer, reflect.Interface:
		return true
	default:
		return t == reflect.TypeFor[jsontext.Value]()
	}
}

func decodeProblem(err error) error {
	se, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return Invalid(CodeInvalidRequest, "", "The body cannot be decoded.").WithCause(err)
	}
	pointer := string(se.JSONPointer)
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return Invalid(CodeParameterUnknown, pointer, "Unknown member "+last(pointer)+"; names are case-sensitive.").WithCause(err)
	case errors.Is(err, errNull):
		return Invalid(CodeInvalidRequest, pointer, "null is not allowed here.").WithCause(err)
	case errors.Is(err, errNotInteger):
		return Invalid(CodeInvalidRequest, pointer, "A plain integer is due, such as 1000.").WithCause(err)
	case errors.Is(err, errNotObject):
		return Invalid(CodeInvalidRequest, pointer, "The value must be an object.").WithCause(err)
	case errors.Is(err, strconv.ErrRange):
		return Invalid(CodeParameterInvalid, pointer, "The number is out of range.").WithCause(err)
	}
	detail := "The value has the wrong type."
	if want := typeName(se.GoType); want != "" {
		detail = "The value must be " + want + "."
	}
	return Invalid(CodeInvalidRequest, pointer, detail).WithCause(err)
}

// checkMembers enforces the api tags of a struct and of the structs in it.
func checkMembers(t reflect.Type, raw jsontext.Value, prefix string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || raw.Kind() != '{' || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return decodeProblem(err)
	}
	var missing []FieldError
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		pointer := prefix + string(jsontext.Pointer("").AppendToken(name))
		value, present := members[name]
		rule := f.Tag.Get("api")
		if !present {
			if rule == "required" {
				missing = append(missing, FieldError{Pointer: pointer, Code: CodeParameterMissing, Detail: name + " is required."})
			}
			continue
		}
		if rule != "" && value.Kind() == 'n' {
			return Invalid(CodeInvalidRequest, pointer, "null is not allowed here.")
		}
		if err := checkMembers(f.Type, value, pointer); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return InvalidFields(missing...)
	}
	return nil
}

var unmarshalerType = reflect.TypeFor[json.UnmarshalerFrom]()

func isObject(t reflect.Type) bool {
	return (t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshalerType)) || t.Kind() == reflect.Map
}

func last(pointer string) string {
	return strconv.Quote(jsontext.Pointer(pointer).LastToken())
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	default:
		return "an object"
	}
}

// typeName describes what a Go type takes in JSON terms; Go names stay inside.
func typeName(t reflect.Type) string {
	if t == nil {
		return ""
	}
	if t == reflect.TypeFor[time.Time]() {
		return "an RFC 3339 time, such as 2026-11-30T12:00:00Z"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a plain integer, such as 1000"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return ""
	}
}
