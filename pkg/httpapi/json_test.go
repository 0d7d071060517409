package httpapi

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

type createBody struct {
	Amount      Integer           `json:"amount" api:"required"`
	Currency    string            `json:"currency" api:"required"`
	Confirm     bool              `json:"confirm"`
	Description Optional[string]  `json:"description"`
	Reason      *string           `json:"reason"`
	Strict      Optional[string]  `json:"strict" api:"nonnull"`
	Metadata    map[string]string `json:"metadata"`
	Types       []string          `json:"types"`
	Plain       int32             `json:"plain"`
	Limit       Optional[Integer] `json:"limit"`
	Filter      filterBody        `json:"filter"`
}

type filterBody struct {
	Tenant string `json:"tenant" api:"required"`
	Status string `json:"status"`
}

func TestDecodeStrict(t *testing.T) {
	t.Parallel()
	const ok = `"amount":1,"currency":"EUR"`
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, tc := range map[string]struct {
		body  string
		code  Code
		place string
	}{
		"empty":                    {``, CodeInvalidRequest, ""},
		"whitespace only":          {"  \n", CodeInvalidRequest, ""},
		"not JSON":                 {`garbage`, CodeInvalidRequest, ""},
		"cut":                      {`{"amount":1`, CodeInvalidRequest, "/amount"},
		"array":                    {`[]`, CodeInvalidRequest, ""},
		"null":                     {`null`, CodeInvalidRequest, ""},
		"string":                   {`"x"`, CodeInvalidRequest, ""},
		"trailing object":          {`{` + ok + `}{}`, CodeInvalidRequest, ""},
		"trailing garbage":         {`{` + ok + `} garbage`, CodeInvalidRequest, ""},
		"byte order mark":          {"\ufeff{" + ok + `}`, CodeInvalidRequest, ""},
		"comment":                  {`{` + ok + `/*x*/}`, CodeInvalidRequest, "/currency"},
		"duplicate":                {`{` + ok + `,"amount":2}`, CodeInvalidRequest, "/amount"},
		"duplicate by escape":      {`{` + ok + `,"\u0061mount":2}`, CodeInvalidRequest, "/amount"},
		"duplicate nested":         {`{` + ok + `,"metadata":{"a":"1","a":"2"}}`, CodeInvalidRequest, "/metadata/a"},
		"duplicate in unknown":     {`{` + ok + `,"x":{"a":"1","a":"2"}}`, CodeInvalidRequest, "/x/a"},
		"other case":               {`{"AMOUNT":1,` + ok + `}`, CodeParameterUnknown, "/AMOUNT"},
		"unknown":                  {`{` + ok + `,"tenant_id":"t"}`, CodeParameterUnknown, "/tenant_id"},
		"unknown nested":           {`{` + ok + `,"filter":{"tenant":"t","Status":"x"}}`, CodeParameterUnknown, "/filter/Status"},
		"unknown with slash":       {`{` + ok + `,"a/b~c":1}`, CodeParameterUnknown, "/a~1b~0c"},
		"missing":                  {`{"currency":"EUR"}`, CodeParameterMissing, "/amount"},
		"missing nested":           {`{` + ok + `,"filter":{}}`, CodeParameterMissing, "/filter/tenant"},
		"invalid UTF-8 value":      {`{` + ok + ",\"description\":\"a\xffb\"}", CodeInvalidRequest, "/description"},
		"invalid UTF-8 name":       {`{` + ok + ",\"metadata\":{\"a\xff\":\"b\"}}", CodeInvalidRequest, "/metadata"},
		"lone high surrogate":      {`{` + ok + `,"description":"\ud83d"}`, CodeInvalidRequest, "/description"},
		"lone low surrogate":       {`{` + ok + `,"metadata":{"n":"\udc00x"}}`, CodeInvalidRequest, "/metadata/n"},
		"lone surrogate in name":   {`{` + ok + `,"metadata":{"\ud83d":"n"}}`, CodeInvalidRequest, "/metadata"},
		"NUL value":                {`{` + ok + `,"description":"a\u0000b"}`, CodeInvalidRequest, "/description"},
		"NUL map value":            {`{` + ok + `,"metadata":{"k":"a\u0000b"}}`, CodeInvalidRequest, "/metadata/k"},
		"NUL name":                 {`{` + ok + `,"metadata":{"a\u0000b":"v"}}`, CodeInvalidRequest, "/metadata/a\x00b"},
		"NUL in array":             {`{` + ok + `,"types":["a","\u0000"]}`, CodeInvalidRequest, "/types/1"},
		"raw NUL":                  {"{" + ok + ",\"description\":\"a\x00b\"}", CodeInvalidRequest, "/description"},
		"too deep":                 {`{` + ok + `,"x":` + deep + `}`, CodeInvalidRequest, "/x" + strings.Repeat("/0", 31)},
		"amount 100.0":             {`{"amount":100.0,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount 1e2":               {`{"amount":1e2,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount 1E400":             {`{"amount":1E400,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount string":            {`{"amount":"100","currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount null":              {`{"amount":null,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount true":              {`{"amount":true,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount array":             {`{"amount":[1],"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount object":            {`{"amount":{"x":1},"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount -0":                {`{"amount":-0,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount 01":                {`{"amount":01,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"amount +1":                {`{"amount":+1,"currency":"EUR"}`, CodeInvalidRequest, "/amount"},
		"currency null":            {`{"amount":1,"currency":null}`, CodeInvalidRequest, "/currency"},
		"currency number":          {`{"amount":1,"currency":978}`, CodeInvalidRequest, "/currency"},
		"bool as string":           {`{` + ok + `,"confirm":"true"}`, CodeInvalidRequest, "/confirm"},
		"bool null":                {`{` + ok + `,"confirm":null}`, CodeInvalidRequest, "/confirm"},
		"map null":                 {`{` + ok + `,"metadata":null}`, CodeInvalidRequest, "/metadata"},
		"map value null":           {`{` + ok + `,"metadata":{"a":null}}`, CodeInvalidRequest, "/metadata/a"},
		"map value object":         {`{` + ok + `,"metadata":{"a":{"b":"c"}}}`, CodeInvalidRequest, "/metadata/a"},
		"element null":             {`{` + ok + `,"types":["a",null]}`, CodeInvalidRequest, "/types/1"},
		"nonnull":                  {`{` + ok + `,"strict":null}`, CodeInvalidRequest, "/strict"},
		"optional of wrong type":   {`{` + ok + `,"description":5}`, CodeInvalidRequest, "/description"},
		"optional integer":         {`{` + ok + `,"limit":1.5}`, CodeInvalidRequest, "/limit"},
		"plain int fraction":       {`{` + ok + `,"plain":1.0}`, CodeInvalidRequest, "/plain"},
		"plain int exponent":       {`{` + ok + `,"plain":1e0}`, CodeInvalidRequest, "/plain"},
		"plain int string":         {`{` + ok + `,"plain":"1"}`, CodeInvalidRequest, "/plain"},
		"plain int out of range":   {`{` + ok + `,"plain":2147483648}`, CodeParameterInvalid, "/plain"},
		"struct given as a string": {`{` + ok + `,"filter":"x"}`, CodeInvalidRequest, "/filter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v createBody
			p := requireProblem(t, DecodeStrict([]byte(tc.body), &v), tc.code, tc.place)
			require.NotEmpty(t, p.Detail)
			require.NotContains(t, p.Detail, "httpapi", "Go names stay inside")
			require.Equal(t, tc.code, p.Errors[0].Code)
		})
	}
}

func TestDecodeStrict_Accepts(t *testing.T) {
	t.Parallel()
	var v createBody
	body := " {\"amount\": 9007199254740993, \"currency\":\"EUR\", \"description\":null, \"reason\":null,\n" +
		`"metadata":{"k":"\ud83d\ude00 A&B \u2028"},"types":[],"limit":0,"filter":{"tenant":"t"}} ` + "\r\n"
	require.NoError(t, DecodeStrict([]byte(body), &v))
	require.Equal(t, Integer{Value: 9007199254740993}, v.Amount)
	require.Equal(t, Optional[string]{Set: true, Null: true}, v.Description)
	require.Equal(t, Optional[string]{}, v.Strict)
	require.Nil(t, v.Reason)
	require.Equal(t, map[string]string{"k": "😀 A&B \u2028"}, v.Metadata)
	require.True(t, v.Limit.Present())

	var m map[string]string
	require.NoError(t, DecodeStrict([]byte(`{"a":"b"}`), &m))
	require.Equal(t, map[string]string{"a": "b"}, m)
}

func TestDecodeStrict_NamesEveryMissingMember(t *testing.T) {
	t.Parallel()
	var v createBody
	err := DecodeStrict([]byte(`{}`), &v)
	p, ok := errors.AsType[*Problem](err)
	require.True(t, ok)
	require.Len(t, p.Errors, 2)
	require.Equal(t, "/amount", p.Errors[0].Pointer)
	require.Equal(t, "/currency", p.Errors[1].Pointer)
}

func TestInteger_OutOfRange(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]Integer{
		"0":                            {Value: 0},
		"-1":                           {Value: -1},
		"9223372036854775807":          {Value: math.MaxInt64},
		"9223372036854775808":          {Value: math.MaxInt64, OutOfRange: true},
		"-9223372036854775808":         {Value: math.MinInt64},
		"-9223372036854775809":         {Value: math.MinInt64, OutOfRange: true},
		"1" + strings.Repeat("0", 400): {Value: math.MaxInt64, OutOfRange: true},
	} {
		var v struct {
			N Integer `json:"n"`
		}
		require.NoError(t, DecodeStrict([]byte(`{"n":`+token+`}`), &v), token)
		require.Equal(t, want, v.N, token)
	}
	require.True(t, Integer{Value: 5}.In(5, 5))
	require.False(t, Integer{Value: 6}.In(5, 5))
	require.False(t, Integer{Value: math.MaxInt64, OutOfRange: true}.In(0, math.MaxInt64))
}

func TestOptional(t *testing.T) {
	t.Parallel()
	var v struct {
		A Optional[string] `json:"a"`
	}
	require.NoError(t, DecodeStrict([]byte(`{}`), &v))
	require.False(t, v.A.Set)
	require.Equal(t, "f", v.A.Or("f"))
	require.NoError(t, DecodeStrict([]byte(`{"a":null}`), &v))
	require.True(t, v.A.Set)
	require.Nil(t, v.A.Ptr())
	require.NoError(t, DecodeStrict([]byte(`{"a":""}`), &v))
	require.Equal(t, "", v.A.Or("f"))
	require.NotNil(t, v.A.Ptr())
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	canonical := func(s string) string {
		b, err := Canonical([]byte(s))
		require.NoError(t, err)
		return string(b)
	}
	want := `{"amount":1000,"currency":"EUR","metadata":{"a":"1","b":"é/"}}`
	for _, same := range []string{
		want,
		` { "currency" : "EUR", "amount":1000, "metadata":{"b":"\u00e9\/","a":"1"} } `,
		"{\"metadata\":{\"a\":\"\\u0031\",\"b\":\"é/\"},\n\t\"amount\":1000,\"currency\":\"\\u0045UR\"}",
	} {
		require.Equal(t, want, canonical(same))
	}
	for a, b := range map[string]string{
		`{"a":1}`:                `{"a":"1"}`,
		`{"a":[1,2]}`:            `{"a":[2,1]}`,
		`{"a":null}`:             `{}`,
		`{"a":9007199254740993}`: `{"a":9007199254740992}`,
		`{"a":""}`:               `{"A":""}`,
	} {
		require.NotEqual(t, canonical(a), canonical(b))
	}
	_, err := Canonical([]byte(`{"a":1,"a":2}`))
	require.Error(t, err)

	raw := []byte(`{"b":1, "a":2}`)
	_, err = Canonical(raw)
	require.NoError(t, err)
	require.Equal(t, `{"b":1, "a":2}`, string(raw), "the input is left alone")
}

func TestEncodeJSON(t *testing.T) {
	t.Parallel()
	b, err := EncodeJSON(struct {
		S []string          `json:"s"`
		M map[string]string `json:"m"`
		D string            `json:"d"`
	}{D: "A&B <b>"})
	require.NoError(t, err)
	require.JSONEq(t, `{"s":[],"m":{},"d":"A&B <b>"}`, string(b))
	_, err = EncodeJSON("a\xff")
	require.Error(t, err)
}

// FuzzDecodeStrict holds decoding to its promises: errors are problems with a
// client's status that can be encoded, and what is accepted is canonical and
// free of what Postgres cannot store.
func FuzzDecodeStrict(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"amount":1,"currency":"EUR"}`, `{"amount":1e2,"currency":"EUR"}`,
		`{"amount":1,"amount":2}`, `{"AMOUNT":1}`, `{"a":"\ud83d"}`, `{"metadata":{"\u0000":"x"}}`,
		"{\"a\":\"\xff\"}", `{"filter":{"tenant":null}}`, `{} {}`, `[[[[`, `{"amount":-0}`,
		`{"amount":99999999999999999999,"currency":""}`, `{"description":null,"limit":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v createBody
		if err := DecodeStrict(raw, &v); err != nil {
			p, ok := errors.AsType[*Problem](err)
			require.True(t, ok)
			require.Contains(t, []int{400, 422}, p.Status)
			b, err := p.Encode()
			require.NoError(t, err)
			require.True(t, jsontext.Value(b).IsValid(), "%s", b)
			return
		}
		require.NotContains(t, v.Currency+v.Description.Value, "\x00")
		once, err := Canonical(raw)
		require.NoError(t, err)
		twice, err := Canonical(once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
	})
}
