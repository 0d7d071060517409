// Package apidoc is the API's reference: the OpenAPI document, which is the source of what the API promises and which tests
// hold every answer against, a browsable page made of it, and a page for each error code.
package apidoc

import (
	_ "embed"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"

	"apipay.io/hub/pkg/httpapi"
)

//go:embed openapi.yaml
var source []byte

// adminOnly are codes of the shared catalogue that this API never answers, so its document does not list them. They have
// their pages here all the same: the type of every problem, of either API, points at one.
var adminOnly = map[httpapi.Code]bool{httpapi.CodeForbidden: true}

// Document is the OpenAPI document, with the error codes of the catalogue.
func Document() (*openapi3.T, error) {
	document, err := openapi3.NewLoader().LoadFromData(source)
	if err != nil {
		return nil, fmt.Errorf("reading openapi.yaml: %w", err)
	}
	codes := document.Components.Schemas["ErrorCode"].Value
	for entry := range httpapi.Catalog() {
		if !adminOnly[entry.Code] {
			codes.Enum = append(codes.Enum, string(entry.Code))
		}
	}
	return document, nil
}
