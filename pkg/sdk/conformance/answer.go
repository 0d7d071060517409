package conformance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// What an answer does with the connection, in Answer.Do (instead of answering) and Answer.End (after answering).
const (
	DoAnswer = "answer"
	EndKeep  = "keep"
	EndClose = "close" // FIN
	EndReset = "reset" // RST, by SO_LINGER 0
	EndStall = "stall" // nothing more, with the connection open
)

// Answer is one scripted answer. The request has always been read to its end before it is played.
type Answer struct {
	// Do is "answer" (default), or "close", "reset", "stall": no byte is answered.
	Do string `json:"do,omitempty"`
	// DelayMS is waited before anything else.
	DelayMS int `json:"delay_ms,omitempty"`
	// Informational lists 1xx statuses that are sent first.
	Informational []int `json:"informational,omitempty"`
	Status        int   `json:"status,omitempty"`
	// Headers are sent as they are, in order. Content-Length is added unless Chunked is set or it is among them, and
	// Content-Type: application/json or application/problem+json where JSON is set and there is none.
	Headers [][2]string `json:"headers,omitempty"`
	// One of these is the body.
	JSON       json.RawMessage `json:"json,omitempty"`
	Body       string          `json:"body,omitempty"`
	BodyBase64 string          `json:"body_base64,omitempty"`
	BodyRepeat *Repeat         `json:"body_repeat,omitempty"`

	Chunked bool `json:"chunked,omitempty"`
	// Truncate is how many bytes of the body are sent before End; the announced length stays that of the whole body.
	Truncate *int64 `json:"truncate,omitempty"`
	// End is "keep" (default), "close", "reset" or "stall".
	End string `json:"end,omitempty"`
}

// Repeat is Text, Count times, sent without being held in memory.
type Repeat struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

func (a Answer) body() (io.Reader, int64, error) {
	switch {
	case len(a.JSON) > 0:
		return strings.NewReader(string(a.JSON)), int64(len(a.JSON)), nil
	case a.BodyBase64 != "":
		b, err := base64.StdEncoding.DecodeString(a.BodyBase64)
		return strings.NewReader(string(b)), int64(len(b)), err
	case a.BodyRepeat != nil:
		length := int64(len(a.BodyRepeat.Text)) * a.BodyRepeat.Count
		return io.LimitReader(&repeated{text: a.BodyRepeat.Text}, length), length, nil
	default:
		return strings.NewReader(a.Body), int64(len(a.Body)), nil
	}
}

func (a Answer) write(w io.Writer) error {
	body, length, err := a.body()
	if err != nil {
		return err
	}
	var head strings.Builder
	for _, status := range a.Informational {
		fmt.Fprintf(&head, "HTTP/1.1 %d Informational\r\n\r\n", status)
	}
	fmt.Fprintf(&head, "HTTP/1.1 %d Scripted\r\n", a.Status)
	has := map[string]bool{}
	for _, h := range a.Headers {
		has[strings.ToLower(h[0])] = true
		fmt.Fprintf(&head, "%s: %s\r\n", h[0], h[1])
	}
	if len(a.JSON) > 0 && !has["content-type"] {
		media := "application/json"
		if a.Status >= 400 {
			media = "application/problem+json"
		}
		fmt.Fprintf(&head, "Content-Type: %s\r\n", media)
	}
	switch {
	case a.Chunked:
		head.WriteString("Transfer-Encoding: chunked\r\n")
	case !has["content-length"] && a.Status != 204 && a.Status != 304:
		head.WriteString("Content-Length: " + strconv.FormatInt(length, 10) + "\r\n")
	}
	head.WriteString("\r\n")
	if _, err := io.WriteString(w, head.String()); err != nil {
		return err
	}
	if a.Truncate != nil {
		body = io.LimitReader(body, *a.Truncate)
	}
	if !a.Chunked {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, body, make([]byte, 64<<10))
		return err
	}
	buffer := make([]byte, 16<<10)
	for {
		n, readErr := io.ReadFull(body, buffer)
		if n > 0 {
			if _, err := fmt.Fprintf(w, "%x\r\n%s\r\n", n, buffer[:n]); err != nil {
				return err
			}
		}
		if readErr != nil {
			break
		}
	}
	if a.Truncate != nil {
		return nil
	}
	_, err = io.WriteString(w, "0\r\n\r\n")
	return err
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := copy(p[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return n, nil
}
