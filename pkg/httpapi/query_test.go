package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// readAll declares one parameter of each kind.
func readAll(t *testing.T, rawQuery string) (limit int, err error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	r.URL.RawQuery = rawQuery
	q := NewQuery(r)
	limit = q.Limit()
	q.Enum("status", "succeeded", "canceled")
	q.String("merchant_reference", 5)
	q.Unix("created[gte]")
	q.Unix("created[lt]")
	q.RFC3339("from")
	q.Bool("dry_run")
	Param(q, "id", "an id", uuid.Parse)
	q.Cursor(testCursors(t), "scope")
	return limit, q.Err()
}

func TestQuery_Refuses(t *testing.T) {
	t.Parallel()
	good := testCursors(t).Encode("scope", Position{})
	for name, tc := range map[string]struct {
		query, place string
		code         Code
	}{
		"limit 0":           {"limit=0", "limit", CodeInvalidRequest},
		"limit 101":         {"limit=101", "limit", CodeInvalidRequest},
		"limit -1":          {"limit=-1", "limit", CodeInvalidRequest},
		"limit +1":          {"limit=%2B1", "limit", CodeInvalidRequest},
		"limit space":       {"limit=+1", "limit", CodeInvalidRequest},
		"limit 010":         {"limit=010", "limit", CodeInvalidRequest},
		"limit x":           {"limit=x", "limit", CodeInvalidRequest},
		"limit 1.5":         {"limit=1.5", "limit", CodeInvalidRequest},
		"limit 1e1":         {"limit=1e1", "limit", CodeInvalidRequest},
		"limit empty":       {"limit=", "limit", CodeInvalidRequest},
		"limit bare":        {"limit", "limit", CodeInvalidRequest},
		"limit 2^31":        {"limit=2147483648", "limit", CodeInvalidRequest},
		"limit 2^63":        {"limit=9223372036854775808", "limit", CodeInvalidRequest},
		"limit 1e400":       {"limit=1" + strings.Repeat("0", 400), "limit", CodeInvalidRequest},
		"limit Arabic":      {"limit=%D9%A1", "limit", CodeInvalidRequest},
		"limit twice":       {"limit=1&limit=2", "limit", CodeInvalidRequest},
		"limit twice equal": {"limit=1&limit=1", "limit", CodeInvalidRequest},
		"limit hidden":      {"limit=1&l%69mit=1", "limit", CodeInvalidRequest},
		"unknown":           {"offset=1", "offset", CodeInvalidRequest},
		"other case":        {"Limit=1", "Limit", CodeInvalidRequest},
		"page":              {"limit=5&page=2", "page", CodeInvalidRequest},
		"enum":              {"status=SUCCEEDED", "status", CodeInvalidRequest},
		"string empty":      {"merchant_reference=", "merchant_reference", CodeInvalidRequest},
		"string long":       {"merchant_reference=abcdef", "merchant_reference", CodeInvalidRequest},
		"NUL":               {"merchant_reference=a%00b", "merchant_reference", CodeInvalidRequest},
		"invalid UTF-8":     {"merchant_reference=%ff", "merchant_reference", CodeInvalidRequest},
		"bad escape":        {"merchant_reference=%zz", "merchant_reference", CodeInvalidRequest},
		"cut escape":        {"merchant_reference=a%2", "merchant_reference", CodeInvalidRequest},
		"bad escape name":   {"%zz=1", "%zz", CodeInvalidRequest},
		"semicolon":         {"limit=1;status=x", "limit", CodeInvalidRequest},
		"unix text":         {"created[gte]=2026-03-29T02:30", "created[gte]", CodeInvalidRequest},
		"unix negative":     {"created[gte]=-1", "created[gte]", CodeInvalidRequest},
		"unix fraction":     {"created[lt]=1.5", "created[lt]", CodeInvalidRequest},
		"unix milliseconds": {"created[lt]=253402300800", "created[lt]", CodeInvalidRequest},
		"created":           {"created=1", "created", CodeInvalidRequest},
		"created[gt]":       {"created[gt]=1", "created[gt]", CodeInvalidRequest},
		"rfc3339 unix":      {"from=1700000000", "from", CodeInvalidRequest},
		"rfc3339 no zone":   {"from=2026-03-29T02:30:00", "from", CodeInvalidRequest},
		"rfc3339 hour":      {"from=2026-03-29T2:30:00Z", "from", CodeInvalidRequest},
		"rfc3339 day":       {"from=2026-02-30T02:30:00Z", "from", CodeInvalidRequest},
		"rfc3339 raw plus":  {"from=2026-03-29T02:30:00+02:00", "from", CodeInvalidRequest},
		"bool":              {"dry_run=1", "dry_run", CodeInvalidRequest},
		"parsed":            {"id=zzz", "id", CodeInvalidRequest},
		"cursor":            {"cursor=zzz", "cursor", CodeCursorInvalid},
		"cursor empty":      {"cursor=", "cursor", CodeCursorInvalid},
		"cursor twice":      {"cursor=" + good + "&cursor=" + good, "cursor", CodeCursorInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAll(t, tc.query)
			p := requireProblem(t, err, tc.code, tc.place)
			require.NotEmpty(t, p.Detail)
			b, err := p.Encode()
			require.NoError(t, err)
			require.NotContains(t, string(b), `"pointer"`, "a parameter is not in the body")
		})
	}
}

func TestQuery_Accepts(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"": 10, "limit=1": 1, "limit=100": 100, "&limit=7&": 7} {
		limit, err := readAll(t, query)
		require.NoError(t, err, query)
		require.Equal(t, want, limit)
	}

	r := httptest.NewRequest(http.MethodGet, "/x?created%5Bgte%5D=1774747800&created[lt]=0&from=2026-03-29T02:30:00.5%2B02:00&name=a+b%25_&dry_run=true", nil)
	q := NewQuery(r)
	gte, ok := q.Unix("created[gte]")
	require.True(t, ok)
	require.Equal(t, time.Unix(1774747800, 0).UTC(), gte)
	lt, ok := q.Unix("created[lt]")
	require.True(t, ok)
	require.Equal(t, int64(0), lt.Unix())
	from, ok := q.RFC3339("from")
	require.True(t, ok)
	require.Equal(t, time.Date(2026, 3, 29, 0, 30, 0, 5e8, time.UTC), from)
	text, ok := q.String("name", 10)
	require.True(t, ok)
	require.Equal(t, "a b%_", text)
	dry, ok := q.Bool("dry_run")
	require.True(t, dry && ok)
	require.NoError(t, q.Err())

	c := testCursors(t)
	at := Position{Time: time.UnixMicro(5).UTC(), ID: uuid.UUID{7}}
	q = NewQuery(httptest.NewRequest(http.MethodGet, "/x?cursor="+c.Encode("s", at), nil))
	got, ok := q.Cursor(c, "s")
	require.True(t, ok)
	require.Equal(t, at, got)
	require.NoError(t, q.Err())
}

func TestQuery_NamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := readAll(t, "limit=0&offset=1&cursor=zzz&"+url.QueryEscape(strings.Repeat("é", 500))+"=1")
	p := requireProblem(t, err, CodeInvalidRequest, "limit")
	require.Len(t, p.Errors, 4)
	require.Less(t, len(p.Errors[3].Parameter), 80, "a stranger's name is clipped")

	r := httptest.NewRequest(http.MethodPost, "/x?a=1", nil)
	requireProblem(t, RefuseQuery(r), CodeInvalidRequest, "a")
	require.NoError(t, RefuseQuery(httptest.NewRequest(http.MethodPost, "/x", nil)))

	q := NewQuery(httptest.NewRequest(http.MethodGet, "/x?currency=xx", nil))
	q.String("currency", 3)
	q.Fail("currency", "Not a currency.")
	requireProblem(t, q.Err(), CodeInvalidRequest, "currency")
}
