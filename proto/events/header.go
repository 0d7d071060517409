package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of a value; ours need 5, and an audit entry's changes a few more.
const maxDepth = 64

// maxCreated is the last second of the year 9999, the largest time that every reader of the JSON can hold.
const maxCreated = 253402300799

// Header is what a router needs to know of an event.
type Header struct {
	ID       string // `evt_` and 26 characters
	Type     string // a type of this contract
	Created  int64  // Unix seconds
	Livemode bool
	// APIVersion is "" if the event does not say.
	APIVersion string
	// EndpointID is the `we_` id in data.object of a ping and of webhook_endpoint.*, else "".
	EndpointID string
}

// seen marks the members that must come exactly once, or at most once.
type seen uint8

const (
	seenID seen = 1 << iota
	seenType
	seenCreated
	seenLivemode
	seenAPIVersion
	seenData
	seenObject
)

// ParseHeader reads the members of a Header and checks that the rest is JSON, without building it. Of the rest it asks only
// that data.object is an object; what is in there, duplicate names included, passes unseen. It does not keep value.
//
// The Header of a refused value holds what was read until then, for logs and quarantine.
func ParseHeader(value []byte) (Header, error) {
	h, object, err := scan(value)
	if err != nil {
		return h, err
	}
	c, ok := byType[h.Type]
	if !ok {
		return h, refuse(ErrUnknownType, strconv.Quote(h.Type))
	}
	if h.APIVersion != "" && h.APIVersion != APIVersion {
		return h, refuse(ErrUnsupportedVersion, strconv.Quote(h.APIVersion))
	}
	if c.object == ObjectWebhookEndpoint {
		h.EndpointID, err = objectID(object)
		if err != nil {
			return h, err
		}
		if !isID("we_", h.EndpointID) {
			return h, refuse(ErrInvalid, "data.object.id is not the id of a webhook endpoint")
		}
	}
	return h, nil
}

// scan makes one pass over value and answers also the bytes of data.object.
func scan(value []byte) (h Header, object []byte, err error) {
	if len(value) > MaxSize {
		return h, nil, refuse(ErrTooLarge, fmt.Sprintf("%d bytes", len(value)))
	}
	if bytes.IndexByte(value, 0) >= 0 || hasEscapedNUL(value) {
		return h, nil, refuse(ErrNotJSON, "U+0000")
	}
	// From a bytes.Buffer the decoder reads in place and never writes.
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(value), jsontext.AllowDuplicateNames(true)), value: value}
	if d.PeekKind() != '{' {
		// Tells a value of another kind from a text that is not JSON.
		if err := d.skip(); err != nil {
			return h, nil, err
		}
		return h, nil, refuse(ErrInvalid, "not an object")
	}
	err = d.members(func(name string) error {
		switch name {
		case "id":
			return d.once(seenID, name, func() (err error) { h.ID, err = d.text(name); return err })
		case "type":
			return d.once(seenType, name, func() (err error) { h.Type, err = d.text(name); return err })
		case "created":
			return d.once(seenCreated, name, func() (err error) { h.Created, err = d.integer(name); return err })
		case "livemode":
			return d.once(seenLivemode, name, func() (err error) { h.Livemode, err = d.boolean(name); return err })
		case "api_version":
			return d.once(seenAPIVersion, name, func() (err error) { h.APIVersion, err = d.text(name); return err })
		case "data":
			return d.once(seenData, name, func() (err error) { object, err = d.data(); return err })
		}
		return d.skip()
	})
	if err != nil {
		return h, nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return h, nil, refuse(ErrNotJSON, "data after the value")
	}
	return h, object, h.check(d.seen)
}

func (h Header) check(found seen) error {
	for _, member := range []struct {
		bit  seen
		name string
	}{
		{seenID, "id"},
		{seenType, "type"},
		{seenCreated, "created"},
		{seenLivemode, "livemode"},
		{seenData, "data"},
		{seenObject, "data.object"},
	} {
		if found&member.bit == 0 {
			return refuse(ErrInvalid, member.name+" is missing")
		}
	}
	if !isID("evt_", h.ID) {
		return refuse(ErrInvalid, "id is not the id of an event")
	}
	if h.Created <= 0 || h.Created > maxCreated {
		return refuse(ErrInvalid, "created is out of range")
	}
	return nil
}

// isID reports whether id is prefix and the 26 characters of a TypeID (Crockford's base32 of 128 bits).
func isID(prefix, id string) bool {
	suffix, ok := strings.CutPrefix(id, prefix)
	if !ok || len(suffix) != 26 || suffix[0] > '7' {
		return false
	}
	for i := range len(suffix) {
		if strings.IndexByte("0123456789abcdefghjkmnpqrstvwxyz", suffix[i]) < 0 {
			return false
		}
	}
	return true
}

// hasEscapedNUL finds `\u0000`, which is JSON, but which no API of ours lets in and which no text column of Postgres holds.
func hasEscapedNUL(value []byte) bool {
	escape := []byte(`\u0000`)
	for rest := 0; ; {
		i := bytes.Index(value[rest:], escape)
		if i < 0 {
			return false
		}
		i += rest
		// After an even number of backslashes this one begins the escape; after an odd number it is itself escaped.
		start := i
		for start > 0 && value[start-1] == '\\' {
			start--
		}
		if (i-start)%2 == 0 {
			return true
		}
		rest = i + 1
	}
}
