package httpapi

import (
	"errors"
	"math/big"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzInteger holds amounts to what the text says: a plain integer token is taken exactly or is out of range, and no other
// text is taken at all.
func FuzzInteger(f *testing.F) {
	for _, seed := range []string{
		"0", "-0", "1", "-1", "1000", "01", "1.0", "1e2", "1E2", `"1"`, "null", "true", "9223372036854775807",
		"9223372036854775808", "-9223372036854775808", "-9223372036854775809", "99999999999999999999", " 7 ", "+1", "0x1", "1_0", "١",
	} {
		f.Add(seed)
	}
	plain := regexp.MustCompile(`^[ \t\r\n]*(0|-?[1-9][0-9]*)[ \t\r\n]*$`)
	f.Fuzz(func(t *testing.T, text string) {
		var body struct {
			Amount Integer `json:"amount" api:"required"`
		}
		err := DecodeStrict([]byte(`{"amount":`+text+`}`), &body)
		match := plain.FindStringSubmatch(text)
		if match == nil {
			require.Error(t, err, "%q was taken as %d", text, body.Amount.Value)
			return
		}
		require.NoError(t, err)
		exact, _ := new(big.Int).SetString(match[1], 10)
		require.Equal(t, exact.IsInt64(), !body.Amount.OutOfRange)
		if exact.IsInt64() {
			require.Equal(t, exact.Int64(), body.Amount.Value)
			return
		}
		require.False(t, body.Amount.In(-1<<62, 1<<62))
	})
}

func TestStringMap(t *testing.T) {
	t.Parallel()
	type body struct {
		M StringMap `json:"m"`
	}
	decode := func(text string) (body, error) {
		var v body
		return v, DecodeStrict([]byte(text), &v)
	}
	v, err := decode(`{"m":{"b":"2","a":"é\ud83d\ude00","":""}}`)
	require.NoError(t, err)
	require.Equal(t, StringMap{Values: map[string]string{"a": "é😀", "b": "2", "": ""}}, v.M)
	v, err = decode(`{}`)
	require.NoError(t, err)
	require.Nil(t, v.M.Values)
	v, err = decode(`{"m":{"o":{"b":1},"s":"x","n":1.5,"z":null,"a/~":["[", {"]":"}"}],"t":true}}`)
	require.NoError(t, err)
	require.Equal(t, StringMap{Values: map[string]string{"s": "x"}, NotStrings: []string{"o", "n", "z", "a/~", "t"}}, v.M)
	for text, pointer := range map[string]string{
		`{"m":null}`: "/m", `{"m":"x"}`: "/m", `{"m":[]}`: "/m", `{"m":1}`: "/m",
		`{"m":{"a":"x","a":"y"}}`: "/m/a", `{"m":{"a":{"b":1,"b":2}}}`: "/m/a/b", `{"m":{"a":"\u0000"}}`: "/m/a",
		`{"m":{"a\u0000":1}}`: "/m/a\x00", `{"m":{"a":["\ud800"]}}`: "/m/a", `{"m":{"a":{"b":"\u0000"}}}`: "/m/a/b",
	} {
		_, err := decode(text)
		p, ok := errors.AsType[*Problem](err)
		require.True(t, ok, "%s: %v", text, err)
		require.Equal(t, CodeInvalidRequest, p.Code, text)
		require.Contains(t, p.Errors[0].Pointer, pointer, text)
	}
}
