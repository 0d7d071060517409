package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// matcher compares a result with what a vector expects; see "Matchers" in the README.
type matcher struct {
	wire  Wire
	wrong []string
}

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func (m *matcher) fail(path, format string, args ...any) {
	m.wrong = append(m.wrong, path+": "+fmt.Sprintf(format, args...))
}

// match notes every difference. present says whether the member was there at all.
func (m *matcher) match(path string, want, got any, present bool) {
	if object, ok := want.(map[string]any); ok {
		for name := range object {
			if strings.HasPrefix(name, "$") {
				m.operate(path, object, got, present)
				return
			}
		}
	}
	if !present {
		if want != nil {
			m.fail(path, "is missing, want %s", show(want))
		}
		return
	}
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			m.fail(path, "is %s, want an object", show(got))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			value, ok := object[name]
			m.match(path+"."+name, want[name], value, ok)
		}
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			m.fail(path, "is %s, want %s", show(got), show(want))
			return
		}
		for i := range want {
			m.match(fmt.Sprintf("%s[%d]", path, i), want[i], list[i], true)
		}
	case json.Number:
		if number, ok := got.(json.Number); !ok || compare(number, want) != 0 {
			m.fail(path, "is %s, want %s", show(got), want)
		}
	default:
		if want != got {
			m.fail(path, "is %s, want %s", show(got), show(want))
		}
	}
}

// operate applies every operator of one object: all of them must hold.
func (m *matcher) operate(path string, operators map[string]any, got any, present bool) {
	for _, name := range slices.Sorted(maps.Keys(operators)) {
		argument := operators[name]
		if name == "$absent" {
			if present && got != nil {
				m.fail(path, "is %s, want nothing", show(got))
			}
			continue
		}
		if name == "$any" {
			if !present || got == nil {
				m.fail(path, "is missing")
			}
			continue
		}
		text, isText := got.(string)
		switch name {
		case "$one_of":
			m.oneOf(path, argument, got, present)
		case "$min", "$max":
			limit, _ := argument.(json.Number)
			number, ok := got.(json.Number)
			if !ok || (name == "$min" && compare(number, limit) < 0) || (name == "$max" && compare(number, limit) > 0) {
				m.fail(path, "is %s, want %s %s", show(got), name, limit)
			}
		case "$uuid4":
			if !isText || !uuid4.MatchString(text) {
				m.fail(path, "is %s, want a lower-case UUID v4", show(got))
			}
		case "$pattern":
			pattern, _ := argument.(string)
			if !isText || !regexp.MustCompile(pattern).MatchString(text) {
				m.fail(path, "is %s, want a text that matches %s", show(got), pattern)
			}
		case "$length":
			list, ok := got.([]any)
			m.match(path+".length", argument, json.Number(fmt.Sprint(len(list))), ok)
		case "$each":
			list, ok := got.([]any)
			if !ok {
				m.fail(path, "is %s, want a list", show(got))
			}
			for i := range list {
				m.match(fmt.Sprintf("%s[%d]", path, i), argument, list[i], true)
			}
		case "$some":
			m.some(path, argument, got)
		case "$contains_none":
			words, _ := argument.([]any)
			for _, word := range words {
				if w, _ := word.(string); strings.Contains(strings.ToLower(show(got)), strings.ToLower(w)) {
					m.fail(path, "contains %q: %s", w, show(got))
				}
			}
		case "$header":
			m.header(path, argument, got)
		case "$samples":
			m.samples(path, argument, got)
		default:
			m.fail(path, "the vector uses the unknown matcher %s", name)
		}
	}
}

func (m *matcher) oneOf(path string, argument, got any, present bool) {
	choices, _ := argument.([]any)
	var reasons []string
	for _, choice := range choices {
		sub := matcher{wire: m.wire}
		if sub.match(path, choice, got, present); len(sub.wrong) == 0 {
			return
		}
		reasons = append(reasons, strings.Join(sub.wrong, ", "))
	}
	m.fail(path, "fits none of %d choices: %s", len(choices), strings.Join(reasons, " | "))
}

// some wants one element of a list to match.
func (m *matcher) some(path string, argument, got any) {
	list, _ := got.([]any)
	for i := range list {
		sub := matcher{wire: m.wire}
		if sub.match(path, argument, list[i], true); len(sub.wrong) == 0 {
			return
		}
	}
	m.fail(path, "has no element that matches %s: %s", show(argument), show(got))
}

// header compares with what was on the wire: [request number from 0, name].
func (m *matcher) header(path string, argument, got any) {
	place, _ := argument.([]any)
	if len(place) != 2 {
		m.fail(path, "$header wants [request, name]")
		return
	}
	index, _ := place[0].(json.Number)
	n, err := index.Int64()
	name, _ := place[1].(string)
	if err != nil || n >= int64(len(m.wire.Requests)) {
		m.fail(path, "there was no request %s on the wire", index)
		return
	}
	values := m.wire.Requests[n].Header(name)
	if len(values) != 1 || got != values[0] {
		m.fail(path, "is %s, but request %d carried %s: %q", show(got), n, name, values)
	}
}

// samples judges waits that were drawn with the SDK's own randomness.
func (m *matcher) samples(path string, argument, got any) {
	want, _ := argument.(map[string]any)
	list, _ := got.([]any)
	limit := func(name string) float64 {
		number, _ := want[name].(json.Number)
		f, _ := number.Float64()
		return f
	}
	if float64(len(list)) != limit("count") {
		m.fail(path, "has %d samples, want %v", len(list), limit("count"))
		return
	}
	capMS, sum, atCap, distinct := limit("cap"), 0.0, 0, map[float64]bool{}
	for _, v := range list {
		number, _ := v.(json.Number)
		f, err := number.Float64()
		if err != nil || f < 0 || f > capMS {
			m.fail(path, "a sample is %s, want 0 to %v", show(v), capMS)
			return
		}
		sum += f
		distinct[f] = true
		if f == capMS {
			atCap++
		}
	}
	mean := sum / float64(len(list))
	if mean < 0.44*capMS || mean > 0.56*capMS {
		m.fail(path, "the mean is %v, want about half of %v", mean, capMS)
	}
	if atCap*100 >= len(list) {
		m.fail(path, "%d of %d samples equal the cap", atCap, len(list))
	}
	if len(distinct) < len(list)/10 {
		m.fail(path, "only %d different values in %d samples", len(distinct), len(list))
	}
}

func compare(a, b json.Number) int {
	x, okX := new(big.Rat).SetString(a.String())
	y, okY := new(big.Rat).SetString(b.String())
	if !okX || !okY {
		return -2
	}
	return x.Cmp(y)
}

func show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 600 {
		return string(text[:600]) + "..."
	}
	return string(text)
}
