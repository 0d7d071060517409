package apidoc

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"apipay.io/hub/pkg/httpapi"
)

//go:embed static
var static embed.FS

const (
	// The viewer styles itself at run time, hence the inline styles. No other host is ever asked.
	viewerPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	pagePolicy = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	shortly   = "public, max-age=300"
	immutable = "public, max-age=31536000, immutable"
)

// Routes adds the public pages.
func Routes(e *echo.Echo) error {
	document, err := Document()
	if err != nil {
		return err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encoding the OpenAPI document: %w", err)
	}
	pages, err := template.ParseFS(static, "static/*.html")
	if err != nil {
		return fmt.Errorf("reading the pages: %w", err)
	}
	viewer := sync.OnceValues(func() (pair [2][]byte, err error) {
		pair[0], err = static.ReadFile("static/redoc.standalone.js")
		if err == nil {
			pair[1], err = compress(pair[0])
		}
		return pair, err
	})
	e.GET("/openapi.json", func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", shortly)
		return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, text)
	})
	e.GET("/docs", asset("static/docs.html", "text/html; charset=utf-8", viewerPolicy))
	e.GET("/docs/init.js", asset("static/init.js", "text/javascript; charset=utf-8", pagePolicy))
	e.GET("/docs/docs.css", asset("static/docs.css", "text/css; charset=utf-8", pagePolicy))
	e.GET("/docs/style.css", asset("static/style.css", "text/css; charset=utf-8", pagePolicy))
	e.GET("/docs/redoc-2.5.4-local.js", func(c echo.Context) error {
		pair, err := viewer()
		if err != nil {
			return err
		}
		h, body := c.Response().Header(), pair[0]
		h.Set("Cache-Control", immutable)
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(c.Request().Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = pair[1]
		}
		return c.Blob(http.StatusOK, "text/javascript; charset=utf-8", body)
	})
	e.GET("/errors", func(c echo.Context) error {
		var entries []errorView
		for entry := range httpapi.Catalog() {
			entries = append(entries, errorPage(entry))
		}
		return page(c, pages, "errors.html", entries)
	})
	e.GET("/errors/:code", func(c echo.Context) error {
		entry, ok := httpapi.Lookup(httpapi.Code(c.Param("code")))
		if !ok {
			return httpapi.New(httpapi.CodeNotFound, "There is no such error code.")
		}
		return page(c, pages, "error.html", errorPage(entry))
	})
	return nil
}

func asset(name, contentType, policy string) echo.HandlerFunc {
	return func(c echo.Context) error {
		body, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		h := c.Response().Header()
		h.Set("Cache-Control", shortly)
		h.Set("Content-Security-Policy", policy)
		return c.Blob(http.StatusOK, contentType, body)
	}
}

func page(c echo.Context, pages *template.Template, name string, data any) error {
	var body bytes.Buffer
	if err := pages.ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("rendering %s: %w", name, err)
	}
	h := c.Response().Header()
	h.Set("Cache-Control", shortly)
	h.Set("Content-Security-Policy", pagePolicy)
	return c.Blob(http.StatusOK, "text/html; charset=utf-8", body.Bytes())
}

func compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

type errorView struct {
	Code    httpapi.Code
	Status  int
	Title   string
	Meaning template.HTML
	Retry   string
	Key     template.HTML
}

func errorPage(e httpapi.Entry) errorView {
	v := errorView{Code: e.Code, Status: e.Status, Title: e.Title, Meaning: withCode(e.Meaning)}
	switch {
	case e.Retryable && e.RetryAfter > 0:
		v.Retry = "Yes, after the seconds that the Retry-After header names."
	case e.Retryable:
		v.Retry = "Yes, after a pause that grows with each try."
	default:
		v.Retry = "No: the same request gives the same answer."
	}
	switch e.Key {
	case httpapi.KeySame:
		v.Key = withCode("The same one: the key was not used up, or its stored answer is the one you want.")
	case httpapi.KeyNew:
		v.Key = withCode("A new one, for what is then a new request.")
	case httpapi.KeyNone:
		v.Key = withCode("None: sending this request again does not help, with any key.")
	}
	return v
}

// withCode escapes a text of the catalogue and sets what it has in backticks as code.
func withCode(text string) template.HTML {
	parts := strings.Split(template.HTMLEscapeString(text), "`")
	for i := 1; i < len(parts)-1; i += 2 {
		parts[i] = "<code>" + parts[i] + "</code>"
	}
	return template.HTML(strings.Join(parts, "")) //nolint:gosec // escaped above
}
