package httpapi

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The page sizes of every list.
const (
	DefaultLimit = 10
	MaxLimit     = 100
)

// maxUnix is the last second of the year 9999, the end of RFC 3339.
const maxUnix = 253402300799

var rfc3339Form = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$`)

// Query reads the query parameters of one request strictly. Asking for a
// parameter declares it; [Query.Err], called after the last one, refuses what
// was not declared, was repeated or was unusable, naming each:
//
//	q := httpapi.NewQuery(c.Request())
//	limit := q.Limit()
//	status, _ := q.Enum("status", "succeeded", "canceled")
//	if err := q.Err(); err != nil {
//		return err
//	}
type Query struct {
	values   map[string][]string
	order    []string
	declared map[string]bool
	errors   []FieldError
}

// NewQuery splits the request's query. Bad percent-encoding, invalid UTF-8 and
// U+0000 are errors of Err.
func NewQuery(r *http.Request) *Query {
	q := &Query{values: map[string][]string{}, declared: map[string]bool{}}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil || !isText(name) {
			q.fail(strings.ToValidUTF8(rawName, "\uFFFD"), "The query has a name that cannot be decoded.")
			continue
		}
		value, err := url.QueryUnescape(rawValue)
		if _, seen := q.values[name]; !seen {
			q.order = append(q.order, name)
		}
		q.values[name] = append(q.values[name], value)
		// A semicolon separated parameters once; servers that still split
		// there read another request than we do.
		if err != nil || !isText(value) || strings.Contains(pair, ";") {
			q.declared[name] = true
			q.fail(name, "The value of "+strconv.Quote(name)+" cannot be decoded.")
		}
	}
	return q
}

// RefuseQuery is for routes without any query parameter.
func RefuseQuery(r *http.Request) error { return NewQuery(r).Err() }

// Err returns the problem, or nil if everything was declared and usable.
func (q *Query) Err() error {
	fields := slices.Clone(q.errors)
	for _, name := range q.order {
		if !q.declared[name] {
			fields = append(fields, FieldError{
				Parameter: name, Code: CodeInvalidRequest,
				Detail: "Unknown query parameter " + strconv.Quote(clip(name)) + ".",
			})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	for i := range fields {
		fields[i].Parameter = clip(fields[i].Parameter)
	}
	// cursor_invalid only if the cursor is all that is wrong: its advice, to
	// start again, would not help otherwise.
	for _, f := range fields {
		if f.Code == CodeInvalidRequest {
			return New(CodeInvalidRequest, f.Detail).WithErrors(fields...)
		}
	}
	return New(fields[0].Code, fields[0].Detail).WithErrors(fields...)
}

// Fail refuses a declared parameter for a reason that its reader found.
func (q *Query) Fail(name, detail string) { q.fail(name, detail) }

func (q *Query) fail(name, detail string) {
	code := CodeInvalidRequest
	if name == "cursor" {
		code = CodeCursorInvalid
	}
	q.errors = append(q.errors, FieldError{Parameter: name, Code: code, Detail: detail})
}

// raw declares name and returns its one value.
func (q *Query) raw(name string) (string, bool) {
	broken := q.declared[name]
	q.declared[name] = true
	values := q.values[name]
	switch {
	case len(values) == 0 || broken:
		return "", false
	case len(values) > 1:
		q.fail(name, "The query parameter "+strconv.Quote(name)+" is repeated.")
		return "", false
	default:
		return values[0], true
	}
}

// Param declares name and parses its value; any error of parse makes it
// unusable. The error's text is not shown.
func Param[T any](q *Query, name, want string, parse func(string) (T, error)) (T, bool) {
	var zero T
	text, ok := q.raw(name)
	if !ok {
		return zero, false
	}
	v, err := parse(text)
	if err != nil {
		q.fail(name, "The query parameter "+strconv.Quote(name)+" must be "+want+".")
		return zero, false
	}
	return v, true
}

// String declares a text of 1 to maxChars code points.
func (q *Query) String(name string, maxChars int) (string, bool) {
	return Param(q, name, "1 to "+strconv.Itoa(maxChars)+" characters", func(s string) (string, error) {
		if s == "" || utf8.RuneCountInString(s) > maxChars {
			return "", strconv.ErrRange
		}
		return s, nil
	})
}

// Enum declares one of a few texts.
func (q *Query) Enum(name string, allowed ...string) (string, bool) {
	return Param(q, name, "one of "+strings.Join(allowed, ", "), func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", strconv.ErrSyntax
		}
		return s, nil
	})
}

// Bool declares true or false.
func (q *Query) Bool(name string) (value, ok bool) {
	text, ok := q.Enum(name, "true", "false")
	return text == "true", ok
}

// Limit declares limit, 1..100 in plain digits, default 10.
func (q *Query) Limit() int {
	n, ok := Param(q, "limit", "an integer from 1 to 100", func(s string) (int64, error) {
		return plainInt(s, 1, MaxLimit)
	})
	if !ok {
		return DefaultLimit
	}
	return int(n)
}

// Unix declares a time in whole Unix seconds, as the merchant API has them.
func (q *Query) Unix(name string) (time.Time, bool) {
	return Param(q, name, "a time in Unix seconds", func(s string) (time.Time, error) {
		n, err := plainInt(s, 0, maxUnix)
		return time.Unix(n, 0).UTC(), err
	})
}

// RFC3339 declares a time such as 2026-03-29T02:30:00Z, as admin-api has them.
func (q *Query) RFC3339(name string) (time.Time, bool) {
	return Param(q, name, "a time in RFC 3339 form (send + as %2B)", func(s string) (time.Time, error) {
		// time.Parse also takes one-digit hours and a decimal comma (go.dev/issue/54580).
		if !rfc3339Form.MatchString(s) {
			return time.Time{}, strconv.ErrSyntax
		}
		t, err := time.Parse(time.RFC3339, s)
		return t.UTC(), err
	})
}

// Cursor declares cursor. ok is false on the first page. Build the scope from
// the filters after they were read.
func (q *Query) Cursor(cursors *Cursors, scope string) (Position, bool) {
	text, ok := q.raw("cursor")
	if !ok {
		return Position{}, false
	}
	p, err := cursors.Decode(scope, text)
	if err != nil {
		q.errors = append(q.errors, FieldError{
			Parameter: "cursor", Code: CodeCursorInvalid, Detail: "The cursor does not belong to this list.",
		})
		return Position{}, false
	}
	return p, true
}

// plainInt takes digits without sign, space or leading zero.
func plainInt(s string, low, high int64) (int64, error) {
	if s == "" || len(s) > 19 || (len(s) > 1 && s[0] == '0') {
		return 0, strconv.ErrSyntax
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && (n < low || n > high) {
		err = strconv.ErrRange
	}
	return n, err
}

// isText reports whether Postgres can store s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// clip bounds what an answer repeats of a name that a client chose.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
