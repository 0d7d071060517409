package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

// The document says as much as the API does: no route without its operation, and none the other way round.
func TestDocument(t *testing.T) {
	t.Parallel()
	document := Document()
	require.NoError(t, document.Validate(t.Context()))
	require.Len(t, operations, len(routes))
	seen := map[string]bool{}
	for _, r := range routes {
		item := document.Paths.Value(documentPath(r.path))
		require.NotNil(t, item, r.path)
		operation := item.GetOperation(r.method)
		require.NotNil(t, operation, "%s %s", r.method, r.path)
		require.NotEmpty(t, operation.Summary, "%s %s", r.method, r.path)
		require.False(t, seen[operation.OperationID], operation.OperationID)
		seen[operation.OperationID] = true
		require.Equal(t, string(r.role), operation.Extensions["x-required-role"])
	}
	// What a browser is given must be the whole of it.
	raw, err := json.Marshal(document)
	require.NoError(t, err)
	read, err := openapi3.NewLoader().LoadFromData(raw)
	require.NoError(t, err)
	require.Equal(t, document.Paths.Len(), read.Paths.Len())
}

var contract = sync.OnceValues(func() (routers.Router, error) {
	openapi3filter.RegisterBodyDecoder("application/problem+json", openapi3filter.JSONBodyDecoder)
	raw, err := json.Marshal(Document())
	if err != nil {
		return nil, err
	}
	document, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}
	// Answers may gain members, but not before the document has them.
	for name, schema := range document.Components.Schemas {
		if name != "Problem" {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
		}
	}
	return gorillamux.NewRouter(document)
})

// secrets are what no answer may hold: keys and signing secrets by their form, and what the tests' rows keep inside.
var secrets = regexp.MustCompile(`apk_(?:test|live)_\w|whsec_|merchants-own-key|secret-payload|postgres://|-token\b|"(?:hash|ciphertext|payload|body|lease_token|idempotency_key)":`)

// scanForSecrets fails the test at an answer with a secret, unless it is the one that makes a key.
func scanForSecrets(t *testing.T, r *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	makesKey := r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/api-keys") && answer.Code == http.StatusCreated
	if found := secrets.FindString(answer.Body.String()); found != "" && !makesKey {
		t.Errorf("%s %s answers a secret: %s", r.Method, r.URL, found)
	}
}

// checked passes requests on, and fails the test at an answer, or an accepted request, that the document does not describe.
func checked(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	router, err := contract()
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is cut short is so for both
		again := r.Clone(r.Context())
		again.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
		scanForSecrets(t, again, recorder)
		route, parameters, err := router.FindRoute(again)
		if err != nil || r.Method == http.MethodHead || strings.Contains(r.Header.Get("Expect"), "100") {
			return // not a route, which the API says by a problem
		}
		input := &openapi3filter.RequestValidationInput{
			Request: again, PathParams: parameters, Route: route,
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
		}
		// The context of the request may have ended with its client.
		ctx := context.WithoutCancel(r.Context())
		if recorder.Code < http.StatusBadRequest {
			if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
				t.Errorf("%s %s was accepted: %v", r.Method, r.URL, err)
			}
		}
		response := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: input, Status: recorder.Code, Header: recorder.Header(), Options: input.Options,
		}
		if recorder.Body.Len() > 0 {
			response.SetBodyBytes(recorder.Body.Bytes())
		}
		if err := openapi3filter.ValidateResponse(ctx, response); err != nil {
			t.Errorf("%s %s answered %d: %v", r.Method, r.URL, recorder.Code, err)
		}
	})
}
