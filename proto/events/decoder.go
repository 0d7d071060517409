package events

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder walks over one JSON text token by token. Its errors are those of this package.
type decoder struct {
	*jsontext.Decoder
	value []byte
	seen  seen
}

// members reads an object, calling member for each name; member reads the value.
func (d *decoder) members(member func(name string) error) error {
	if _, err := d.ReadToken(); err != nil {
		return refuse(ErrNotJSON, err.Error())
	}
	for d.PeekKind() == '"' {
		raw, err := d.ReadValue()
		if err != nil {
			return refuse(ErrNotJSON, err.Error())
		}
		name, err := unquote(raw)
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return refuse(ErrNotJSON, err.Error())
	}
	return nil
}

// once refuses a second member of the same name: which of the two counts differs from parser to parser.
func (d *decoder) once(bit seen, name string, read func() error) error {
	if d.seen&bit != 0 {
		return refuse(ErrInvalid, name+" is there twice")
	}
	d.seen |= bit
	return read()
}

// data reads the envelope's data and answers the bytes of data.object.
func (d *decoder) data() (object []byte, err error) {
	if d.PeekKind() != '{' {
		return nil, d.wrongKind("data", "an object")
	}
	err = d.members(func(name string) error {
		if name != "object" {
			return d.skip()
		}
		return d.once(seenObject, "data.object", func() error {
			if d.PeekKind() != '{' {
				return d.wrongKind("data.object", "an object")
			}
			before := d.InputOffset()
			if err := d.skip(); err != nil {
				return err
			}
			// The offset before still lies on the colon.
			object = bytes.TrimLeft(d.value[before:d.InputOffset()], ": \t\r\n")
			return nil
		})
	})
	return object, err
}

func (d *decoder) text(name string) (string, error) {
	if d.PeekKind() != '"' {
		return "", d.wrongKind(name, "a string")
	}
	token, err := d.ReadToken()
	if err != nil {
		return "", refuse(ErrNotJSON, err.Error())
	}
	return token.String(), nil
}

func (d *decoder) boolean(name string) (bool, error) {
	kind := d.PeekKind()
	if kind != 't' && kind != 'f' {
		return false, d.wrongKind(name, "a boolean")
	}
	token, err := d.ReadToken()
	if err != nil {
		return false, refuse(ErrNotJSON, err.Error())
	}
	return token.Bool(), nil
}

// integer takes plain digits only: neither 1.0 nor 1e3 nor "1".
func (d *decoder) integer(name string) (int64, error) {
	if d.PeekKind() != '0' {
		return 0, d.wrongKind(name, "an integer")
	}
	raw, err := d.ReadValue()
	if err != nil {
		return 0, refuse(ErrNotJSON, err.Error())
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, refuse(ErrInvalid, name+" is not an integer")
	}
	return n, nil
}

// wrongKind is about a value that was peeked at: a text that ends or breaks there is not JSON at all.
func (d *decoder) wrongKind(name, want string) error {
	if err := d.skip(); err != nil {
		return err
	}
	return refuse(ErrInvalid, name+" is not "+want)
}

// skip checks one value of any kind and leaves it out. The decoder's own limit on nesting is too generous.
func (d *decoder) skip() error {
	for depth := d.StackDepth(); ; {
		if _, err := d.ReadToken(); err != nil {
			return refuse(ErrNotJSON, err.Error())
		}
		switch now := d.StackDepth(); {
		case now > maxDepth:
			return refuse(ErrTooLarge, "nested too deeply")
		case now <= depth:
			return nil
		}
	}
}

// objectID answers the id in the bytes of an object that was already checked to be JSON.
func objectID(object []byte) (string, error) {
	d := decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(object), jsontext.AllowDuplicateNames(true)), value: object}
	var id string
	err := d.members(func(name string) error {
		if name != "id" {
			return d.skip()
		}
		return d.once(seenID, "data.object.id", func() (err error) { id, err = d.text("data.object.id"); return err })
	})
	return id, err
}

// unquote decodes a name; names without escapes, which are all of ours, cost no allocation beyond the string.
func unquote(raw jsontext.Value) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	name, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", refuse(ErrNotJSON, err.Error())
	}
	return string(name), nil
}
