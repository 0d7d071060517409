package httpapi

// List is one page of a list, newest first.
type List[T any] struct {
	Object     string  `json:"object"`
	Data       []T     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// NewList makes a page. An empty next means that this is the last one.
func NewList[T any](data []T, next string) List[T] {
	if data == nil {
		data = []T{}
	}
	l := List[T]{Object: "list", Data: data}
	if next != "" {
		l.HasMore, l.NextCursor = true, &next
	}
	return l
}

// Page makes a page from rows that were read with LIMIT limit+1, so that the
// extra row tells whether there are more. cursor is called with the last row
// that the page shows.
func Page[T any](rows []T, limit int, cursor func(last T) string) List[T] {
	if len(rows) <= limit {
		return NewList(rows, "")
	}
	return NewList(rows[:limit], cursor(rows[limit-1]))
}
