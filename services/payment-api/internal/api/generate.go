// Package api is what oapi-codegen makes of the OpenAPI document: a type for each of its schemas, an interface with a
// method for each of its operations, and the registration of their routes. An operation without a method, or an answer
// without one of the document's members, does not compile.
//
// codegen.yaml says what is generated and has the templates of the interface and the registration; overlay.yaml names the
// Go types of what the document's own vocabulary cannot say. Neither shows in the document that merchants read.
package api

//go:generate env GOWORK=off GOFLAGS=-mod=mod go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config codegen.yaml ../apidoc/openapi.yaml
