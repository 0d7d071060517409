package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// DefaultMaxBody is the largest request body in bytes.
const DefaultMaxBody = 64 << 10

// BodyOption changes how a body is read.
type BodyOption func(*bodyOptions)

type bodyOptions struct{ allowEmpty bool }

// AllowEmpty takes an absent body for {}, without any Content-Type.
func AllowEmpty() BodyOption { return func(o *bodyOptions) { o.allowEmpty = true } }

// Bind reads the body and decodes it strictly. It returns the bytes that were
// decoded ({} for an absent body), from which the fingerprint is made.
func Bind[T any](c echo.Context, v *T, opts ...BodyOption) ([]byte, error) {
	raw, err := ReadBody(c, opts...)
	if err != nil {
		return nil, err
	}
	return raw, DecodeStrict(raw, v)
}

// ReadBody reads a JSON body: at most the limit of [Options.MaxBody] (413),
// sent as application/json in UTF-8 (415).
func ReadBody(c echo.Context, opts ...BodyOption) ([]byte, error) {
	var o bodyOptions
	for _, opt := range opts {
		opt(&o)
	}
	r := c.Request()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	typeErr := checkContentType(r.Header)
	if typeErr != nil && !o.allowEmpty && len(r.Header.Values("Content-Type")) > 0 {
		return nil, typeErr
	}
	// A length that is told is believed: nothing is read, and no 100 Continue asks
	// for what will be refused.
	if r.ContentLength > bodyLimit(c) {
		return nil, tooLargeProblem(bodyLimit(c))
	}
	// The middleware has put the limit around Body; a handler that is tested
	// without it still gets the default.
	raw, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit(c)+1))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, tooLargeProblem(bodyLimit(c))
		}
		// The client stopped sending, or sent a broken chunk.
		return nil, New(CodeInvalidRequest, "The body could not be read to its end.").WithCause(err)
	}
	c.Set(keyBodyRead, true)
	if int64(len(raw)) > bodyLimit(c) {
		return nil, tooLargeProblem(bodyLimit(c))
	}
	if len(raw) == 0 {
		if o.allowEmpty {
			return []byte("{}"), nil
		}
		return raw, nil
	}
	if typeErr != nil {
		return nil, typeErr
	}
	return raw, nil
}

func tooLargeProblem(limit int64) *Problem {
	return New(CodePayloadTooLarge, fmt.Sprintf("The body is larger than %d bytes.", limit))
}

// checkContentType accepts application/json, with no parameter but
// charset=utf-8, and no content coding.
func checkContentType(h http.Header) error {
	refuse := func(detail string) error { return New(CodeUnsupportedMediaType, detail) }
	if enc := h.Values("Content-Encoding"); len(enc) > 0 && !strings.EqualFold(strings.Join(enc, ","), "identity") {
		return refuse("Send the body without a Content-Encoding.")
	}
	values := h.Values("Content-Type")
	if len(values) != 1 {
		return refuse("Send one Content-Type header: application/json.")
	}
	mediaType, params, err := mime.ParseMediaType(values[0])
	if err != nil || mediaType != "application/json" {
		return refuse("Send the body as application/json.")
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return refuse("The only parameter of application/json that is accepted is charset=utf-8.")
		}
	}
	return nil
}
