// Package apidoctest holds the answers of tests against the OpenAPI document: an answer that the document does not describe
// fails the test.
package apidoctest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"apipay.io/hub/services/payment-api/internal/apidoc"
)

type contract struct {
	document *openapi3.T
	router   routers.Router
	err      error
}

var load = sync.OnceValue(func() contract {
	// problem+json is JSON to the validator as well.
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	document, err := apidoc.Document()
	if err != nil {
		return contract{err: err}
	}
	// Tests reach the service under any host.
	document.Servers = nil
	if err := document.Validate(context.Background()); err != nil {
		return contract{err: err}
	}
	router, err := gorillamux.NewRouter(document)
	return contract{document: document, router: router, err: err}
})

// Handler passes requests on and reports to t every answer below /v1 that is not as the document says.
func Handler(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	c := load()
	if c.err != nil {
		t.Fatalf("apidoctest: %v", c.err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		answer := recorder.Result()
		body := recorder.Body.Bytes()
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		if err := c.check(r, answer, body); err != nil {
			t.Errorf("apidoctest: %s %s answered %d: %v\n%s", r.Method, r.URL.Path, answer.StatusCode, err, body)
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
	})
}

func (c contract) check(r *http.Request, answer *http.Response, body []byte) error {
	if answer.Header.Get("X-Request-Id") == "" {
		return errors.New("no X-Request-Id")
	}
	if answer.StatusCode >= 400 && answer.Header.Get("Content-Type") != "application/problem+json" {
		return fmt.Errorf("an error of type %q", answer.Header.Get("Content-Type"))
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/") || r.Method == http.MethodHead {
		return nil
	}
	// The handler has consumed the body; routing and the answer do not need it.
	request := r.Clone(context.WithoutCancel(r.Context()))
	request.Body = http.NoBody
	route, pathParams, err := c.router.FindRoute(request)
	if err != nil {
		// No operation of the document: nothing but a refusal may come from there.
		if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusMethodNotAllowed ||
			answer.StatusCode == http.StatusUnauthorized {
			return c.problem(body)
		}
		return err
	}
	return openapi3filter.ValidateResponse(request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: request, PathParams: pathParams, Route: route},
		Status:                 answer.StatusCode,
		Header:                 answer.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
}

func (c contract) problem(body []byte) error {
	schema := c.document.Components.Schemas["Problem"].Value
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return err
	}
	return schema.VisitJSON(value)
}
