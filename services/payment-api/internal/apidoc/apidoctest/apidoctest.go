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
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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
	// Answers may gain members, but not before the document has them.
	for _, schema := range document.Components.Schemas {
		closeSchema(schema)
	}
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

// closeSchema refuses members that the schema does not name, in what the schema says itself. Parts of an allOf become one
// schema first: a part does not know the members of the others.
func closeSchema(ref *openapi3.SchemaRef) {
	if ref == nil || ref.Value == nil {
		return
	}
	schema := ref.Value
	if len(schema.AllOf) > 0 {
		// In place: everything that refers to the schema shares it.
		parts := schema.AllOf
		schema.AllOf, schema.Properties, schema.Required = nil, openapi3.Schemas{}, nil
		for _, part := range parts {
			maps.Copy(schema.Properties, part.Value.Properties)
			schema.Required = append(schema.Required, part.Value.Required...)
		}
	}
	for _, property := range schema.Properties {
		if property.Ref == "" {
			closeSchema(property)
		}
	}
	if schema.Items != nil && schema.Items.Ref == "" {
		closeSchema(schema.Items)
	}
	if len(schema.Properties) > 0 && schema.AdditionalProperties.Schema == nil {
		no := false
		schema.AdditionalProperties.Has = &no
	}
}

// everywhere are the headers that HTTP itself and every answer of pkg/httpapi have.
var everywhere = []string{
	"Content-Type", "Content-Length", "Date", "Connection", "Cache-Control", "Content-Security-Policy", "Referrer-Policy",
	"X-Content-Type-Options",
}

// checkHeaders refuses headers that the operation does not have for the status.
func checkHeaders(route *routers.Route, answer *http.Response) error {
	response := route.Operation.Responses.Status(answer.StatusCode)
	if response == nil {
		return nil // refused with the body
	}
	for name := range answer.Header {
		documented := slices.Contains(everywhere, name)
		for known := range response.Value.Headers {
			documented = documented || http.CanonicalHeaderKey(known) == name
		}
		if !documented {
			return fmt.Errorf("the header %s is not documented", name)
		}
	}
	return nil
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
	if err := checkHeaders(route, answer); err != nil {
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
