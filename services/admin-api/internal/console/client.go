package console

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/services/admin-api/internal/api"
)

// problem is what the API refused or failed with.
type problem struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Title     string `json:"title"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

// recorder takes the API's answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// call asks the API as the one who signed in, from where they are, under the same request id. A refusal is a [*problem].
func (v *visit) call(method, path string, query url.Values, body, into any) error {
	var reader io.Reader = http.NoBody
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		reader = bytes.NewReader(raw)
	}
	outer := v.Request()
	target := url.URL{Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(api.As(outer.Context(), v.who), method, target.String(), reader)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.RemoteAddr, request.Host = outer.RemoteAddr, outer.Host
	request.Header.Set(httpapi.HeaderRequestID, httpapi.RequestID(outer.Context()))
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer := &recorder{header: http.Header{}}
	v.console.api.ServeHTTP(answer, request)
	if answer.status >= http.StatusBadRequest {
		refused := &problem{Status: answer.status}
		if err := json.Unmarshal(answer.body.Bytes(), refused); err != nil {
			return fmt.Errorf("reading the problem: %w", err)
		}
		if refused.Detail == "" {
			refused.Detail = refused.Title
		}
		return refused
	}
	if into == nil || answer.body.Len() == 0 {
		return nil
	}
	if err := json.Unmarshal(answer.body.Bytes(), into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return nil
}

func (v *visit) read(path string, query url.Values, into any) error {
	return v.call(http.MethodGet, path, query, nil, into)
}

// list is one page of a list.
type list[T any] struct {
	Data       []T     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}
