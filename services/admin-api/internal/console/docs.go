package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"apipay.io/hub/services/admin-api/internal/api"
)

// The API's reference is a page like the others, made from the OpenAPI document: no viewer has to be trusted with a
// looser policy.

var openAPI = sync.OnceValues(func() ([]byte, error) {
	raw, err := json.Marshal(api.Document())
	if err != nil {
		return nil, fmt.Errorf("encoding the OpenAPI document: %w", err)
	}
	return raw, nil
})

func (c *Console) openAPI(v *visit) error {
	raw, err := openAPI()
	if err != nil {
		return err
	}
	v.Response().Header().Set("Cache-Control", "public, max-age=300")
	return v.Blob(http.StatusOK, "application/json", raw)
}

type docsPage struct {
	Title, Version string
	Paragraphs     []string
	Tags           []docTag
	Schemas        []docSchema
}

type docTag struct {
	Name       string
	Operations []docOperation
}

type docOperation struct {
	ID, Method, Path, Summary, Description string
	Parameters                             []docMember
	Body                                   *docType
	BodyOptional                           bool
	BodyMembers                            []docMember
	Answers                                []docAnswer
	Problems                               string
}

type docAnswer struct {
	Status string
	Type   *docType
}

// docType is a type in words; Schema is the name of what it is, or is a list of.
type docType struct{ Text, Schema string }

type docMember struct {
	Name, In, About string
	Type            docType
	Required        bool
}

type docSchema struct {
	Name    string
	Members []docMember
}

var docs = sync.OnceValue(func() docsPage {
	document := api.Document()
	page := docsPage{Title: document.Info.Title, Version: document.Info.Version, Paragraphs: strings.Split(document.Info.Description, "\n\n")}
	for _, tag := range document.Tags {
		entry := docTag{Name: tag.Name}
		for _, path := range document.Paths.InMatchingOrder() {
			for method, operation := range document.Paths.Value(path).Operations() {
				if operation.Tags[0] == tag.Name {
					entry.Operations = append(entry.Operations, describeOperation(method, path, operation))
				}
			}
		}
		slices.SortFunc(entry.Operations, func(a, b docOperation) int {
			return strings.Compare(a.Path+a.Method, b.Path+b.Method)
		})
		page.Tags = append(page.Tags, entry)
	}
	for name, schema := range document.Components.Schemas {
		page.Schemas = append(page.Schemas, docSchema{Name: name, Members: members(schema.Value)})
	}
	slices.SortFunc(page.Schemas, func(a, b docSchema) int { return strings.Compare(a.Name, b.Name) })
	return page
})

func describeOperation(method, path string, o *openapi3.Operation) docOperation {
	d := docOperation{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, Description: o.Description}
	for _, p := range o.Parameters {
		d.Parameters = append(d.Parameters, docMember{
			Name: p.Value.Name, In: p.Value.In, About: p.Value.Description, Type: describeType(p.Value.Schema), Required: p.Value.Required,
		})
	}
	if o.RequestBody != nil {
		ref := o.RequestBody.Value.Content.Get("application/json").Schema
		of := describeType(ref)
		d.Body, d.BodyOptional = &of, !o.RequestBody.Value.Required
		if of.Schema == "" {
			d.BodyMembers = members(ref.Value)
		}
	}
	var problems []string
	for status, response := range o.Responses.Map() {
		answer := docAnswer{Status: status}
		if content := response.Value.Content.Get("application/json"); content != nil {
			of := describeType(content.Schema)
			answer.Type = &of
		} else if len(response.Value.Content) > 0 {
			problems = append(problems, status)
			continue
		}
		d.Answers = append(d.Answers, answer)
	}
	slices.SortFunc(d.Answers, func(a, b docAnswer) int { return strings.Compare(a.Status, b.Status) })
	slices.Sort(problems)
	d.Problems = strings.Join(problems, ", ")
	return d
}

func members(schema *openapi3.Schema) []docMember {
	var list []docMember
	for name, ref := range schema.Properties {
		list = append(list, docMember{
			Name: name, Type: describeType(ref), Required: slices.Contains(schema.Required, name), About: ref.Value.Description,
		})
	}
	slices.SortFunc(list, func(a, b docMember) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func describeType(ref *openapi3.SchemaRef) docType {
	if name, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/"); ok {
		return docType{Text: name, Schema: name}
	}
	s := ref.Value
	if len(s.AllOf) == 1 {
		of := describeType(s.AllOf[0])
		return docType{Text: of.Text + " or null", Schema: of.Schema}
	}
	text, schema := "anything", ""
	if s.Type != nil {
		text = strings.Join(s.Type.Slice(), " or ")
	}
	switch {
	case s.Items != nil:
		of := describeType(s.Items)
		text, schema = "list of "+of.Text, of.Schema
	case s.Properties["data"] != nil:
		of := describeType(s.Properties["data"].Value.Items)
		text, schema = "page of "+of.Text, of.Schema
	case s.AdditionalProperties.Schema != nil:
		text = "members of type " + describeType(s.AdditionalProperties.Schema).Text
	case s.Format == "date-time":
		text = "time"
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			if value != nil {
				values = append(values, fmt.Sprint(value))
			}
		}
		text = strings.Join(values, ", ")
	}
	if s.Nullable && text != "anything" {
		text += " or null"
	}
	return docType{Text: text, Schema: schema}
}

func (c *Console) docs(v *visit) error {
	return v.render(http.StatusOK, "docs", "API reference", docs())
}
