package apipay

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// List is one page of a list, newest first.
type List[T any] struct {
	Object  string `json:"object"`
	Data    []*T   `json:"data"`
	HasMore bool   `json:"has_more"`
	// NextCursor is the cursor of the next page; nil on the last one.
	NextCursor *string `json:"next_cursor"`
	Extra      Extra   `json:"-"`
}

// UnmarshalJSON reads a page, unknown members included.
func (l *List[T]) UnmarshalJSON(data []byte) error {
	type plain List[T]
	return decodeObject(data, (*plain)(l), &l.Extra)
}

// MarshalJSON writes the page as it came.
func (l List[T]) MarshalJSON() ([]byte, error) {
	type plain List[T]
	return encodeObject(plain(l), l.Extra)
}

// page fetches one page.
func page[T any](ctx context.Context, c *core, path []string, query url.Values, options []RequestOption) (*List[T], error) {
	var list List[T]
	if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, into: &list}, options); err != nil {
		return nil, err
	}
	return &list, nil
}

// all walks over every page from where query starts. Each page is a call of its own, retried alone. Leaving the loop
// fetches nothing more.
func all[T any](ctx context.Context, c *core, path []string, query url.Values, options []RequestOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		query := cloneValues(query)
		seen := map[string]bool{query.Get("cursor"): true}
		for {
			list, err := page[T](ctx, c, path, query, options)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range list.Data {
				if !yield(item, nil) {
					return
				}
			}
			if !list.HasMore {
				return
			}
			if list.NextCursor == nil || seen[*list.NextCursor] {
				yield(nil, &Error{
					Kind: KindDecode, Code: CodeInvalidResponse, Status: http.StatusOK, Attempts: 1,
					Cause: errors.New("the list has more, but its cursor is missing or was there before"),
				})
				return
			}
			seen[*list.NextCursor] = true
			query.Set("cursor", *list.NextCursor)
		}
	}
}

func cloneValues(values url.Values) url.Values {
	clone := url.Values{}
	for name, list := range values {
		clone[name] = list
	}
	return clone
}

// Paging are the parameters of every list. The zero value is the first page, with the server's default of 10.
type Paging struct {
	// Limit is 1 to 100.
	Limit int
	// Cursor is a page's NextCursor.
	Cursor string
}

func (p Paging) values() url.Values {
	q := queryValues{}
	q.integer("limit", int64(p.Limit))
	q.text("cursor", p.Cursor)
	return url.Values(q)
}

// queryValues leaves out what is zero.
type queryValues url.Values

func (q queryValues) text(name, value string) {
	if value != "" {
		url.Values(q).Set(name, value)
	}
}

func (q queryValues) integer(name string, value int64) {
	if value != 0 {
		url.Values(q).Set(name, strconv.FormatInt(value, 10))
	}
}
