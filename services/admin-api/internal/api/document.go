package api

import (
	"net/http"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"apipay.io/hub/pkg/httpapi"
)

// operation is what the document says of a route beyond its method, path and role.
type operation struct {
	id, tag, summary string
	// description is Markdown-free prose; empty where the summary says it all.
	description string
	query       []parameter
	// body is a value of the request's type; nil for none. optional says that it may be left out.
	body     any
	optional bool
	// answers are values of the types that are answered, by status; nil for no content.
	answers map[int]any
	// conflicts says that the state of things can refuse it (409).
	conflicts bool
}

const description = `The API of support staff and operators: deliveries and every attempt of them, what the outbox and the quarantine hold,
payment outcomes that nobody knows, tenants and their API keys.

Every call carries a staff token as a bearer token: a static one, or an access token of the configured OpenID Connect issuer. Each
role includes the one before: viewer, support, admin. What a token confined to some tenants does not see does not exist (404).
Every write leaves an entry in the audit log.

Errors are problem documents (RFC 9457); write your logic against code. Requests are strict: unknown or repeated members and
parameters are refused. Times are RFC 3339 in UTC with microseconds. Lists are newest first; next_cursor leads on. A number that is
null is not known, and not 0. Answers may gain members and enumerations values: ignore what you do not know.`

// Document is the OpenAPI document of every route. It is made from the types that are answered, so it cannot say
// anything else; tests hold each answer and each accepted request against it.
var Document = sync.OnceValue(func() *openapi3.T {
	m := modeler{schemas: openapi3.Schemas{}}
	doc := &openapi3.T{
		OpenAPI:    "3.0.3",
		Info:       &openapi3.Info{Title: "ApiPay Hub admin-api", Version: "v1", Description: description},
		Paths:      openapi3.NewPaths(),
		Security:   openapi3.SecurityRequirements{{"staffToken": {}}},
		Components: &openapi3.Components{Schemas: m.schemas, SecuritySchemes: openapi3.SecuritySchemes{}},
	}
	doc.Components.SecuritySchemes["staffToken"] = &openapi3.SecuritySchemeRef{Value: openapi3.NewSecurityScheme().
		WithType("http").WithScheme("bearer").WithDescription("A staff token")}
	m.schemas["Problem"] = problemSchema()
	tags := map[string]bool{}
	for _, r := range routes {
		o := operations[r.method+" "+r.path]
		if !tags[o.tag] {
			tags[o.tag] = true
			doc.Tags = append(doc.Tags, &openapi3.Tag{Name: o.tag})
		}
		path := documentPath(r.path)
		item := doc.Paths.Value(path)
		if item == nil {
			item = &openapi3.PathItem{}
			doc.Paths.Set(path, item)
		}
		item.SetOperation(r.method, o.document(r, m))
	}
	return doc
})

// documentPath writes :name as {name}.
func documentPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

func (o operation) document(r route, m modeler) *openapi3.Operation {
	op := openapi3.NewOperation()
	op.OperationID, op.Tags, op.Summary = o.id, []string{o.tag}, o.summary
	op.Description = strings.TrimSpace(o.description + " Needs the role " + string(r.role) + ".")
	op.Extensions = map[string]any{"x-required-role": string(r.role)}
	for part := range strings.SplitSeq(r.path, "/") {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			op.AddParameter(openapi3.NewPathParameter(name).WithSchema(openapi3.NewStringSchema()))
		}
	}
	for _, p := range o.query {
		op.AddParameter(openapi3.NewQueryParameter(p.name).WithDescription(p.about).WithSchema(p.schema))
	}
	if o.body != nil {
		body := openapi3.NewRequestBody().WithRequired(!o.optional).WithJSONSchemaRef(m.request(o.body))
		op.RequestBody = &openapi3.RequestBodyRef{Value: body}
	}
	op.Responses = openapi3.NewResponses()
	op.Responses.Delete("default")
	for status, of := range o.answers {
		response := openapi3.NewResponse().WithDescription(http.StatusText(status))
		if of != nil {
			response.WithJSONSchemaRef(m.answer(of))
		}
		op.AddResponse(status, response)
	}
	for _, status := range o.problems(r) {
		response := openapi3.NewResponse().WithDescription(http.StatusText(status)).
			WithContent(openapi3.Content{httpapi.MediaTypeProblem: openapi3.NewMediaType().
				WithSchemaRef(openapi3.NewSchemaRef("#/components/schemas/Problem", m.schemas["Problem"].Value))})
		op.AddResponse(status, response)
	}
	return op
}

// problems are the statuses with which a route can refuse.
func (o operation) problems(r route) []int {
	list := []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if strings.Contains(r.path, ":") || o.body != nil || len(o.query) > 0 {
		list = append(list, http.StatusNotFound)
	}
	if o.conflicts {
		list = append(list, http.StatusConflict)
	}
	if o.body != nil {
		list = append(list, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	return append(list, http.StatusUnprocessableEntity)
}

func problemSchema() *openapi3.SchemaRef {
	text := openapi3.NewStringSchema
	failed := openapi3.NewObjectSchema().WithProperties(map[string]*openapi3.Schema{
		"pointer": text(), "parameter": text(), "header": text(), "code": text(), "detail": text(),
	})
	codes := text()
	for entry := range httpapi.Catalog() {
		codes.Enum = append(codes.Enum, string(entry.Code))
	}
	problem := openapi3.NewObjectSchema().WithProperties(map[string]*openapi3.Schema{
		"type": text(), "title": text(), "status": openapi3.NewIntegerSchema(), "code": codes, "detail": text(),
		"instance": text(), "request_id": text(), "errors": openapi3.NewArraySchema().WithItems(failed),
	})
	problem.Required = []string{"type", "title", "status", "code", "request_id"}
	return openapi3.NewSchemaRef("", problem)
}

// parameter is one of a query.
type parameter struct {
	name, about string
	schema      *openapi3.Schema
}

func idOf(name, prefix string) parameter {
	return parameter{name, "A " + prefix + "_ id.", openapi3.NewStringSchema().WithPattern("^" + prefix + "_")}
}

func textOf(name, about string, most int64) parameter {
	return parameter{name, about, openapi3.NewStringSchema().WithMinLength(1).WithMaxLength(most)}
}

func choice(name string, values ...string) parameter {
	schema := openapi3.NewStringSchema()
	for _, value := range values {
		schema.Enum = append(schema.Enum, value)
	}
	return parameter{name, "", schema}
}

func moment(name, about string) parameter {
	return parameter{name, about, openapi3.NewDateTimeSchema()}
}

// paged adds what every list takes.
func paged(filters ...parameter) []parameter {
	limit := openapi3.NewIntegerSchema().WithMin(1).WithMax(100).WithDefault(10)
	return append(filters,
		parameter{"limit", "How many at most.", limit},
		parameter{"cursor", "next_cursor of the page before, with the same filters.", openapi3.NewStringSchema()})
}
