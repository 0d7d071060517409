package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	cursorVersion = 1
	cursorBody    = 1 + 8 + 16
	cursorTag     = 16
)

// errCursorKey is answered for a key that could be guessed.
var errCursorKey = errors.New("httpapi: a cursor key needs at least 16 bytes")

// strictBase64 refuses non-zero trailing bits, so that one cursor has one text.
var strictBase64 = base64.RawURLEncoding.Strict()

// Position is a place in a list ordered by (Time, ID) descending. Time has
// microseconds, as timestamptz.
type Position struct {
	Time time.Time
	ID   uuid.UUID
}

// Cursors makes and checks list cursors. A cursor is opaque, authenticated and
// bound to a scope, so one made for another tenant, mode, list or filter is
// refused. All replicas need the same key.
type Cursors struct{ key []byte }

// NewCursors takes an HMAC key of at least 16 bytes.
func NewCursors(key []byte) (*Cursors, error) {
	if len(key) < 16 {
		return nil, errCursorKey
	}
	return &Cursors{key: append([]byte(nil), key...)}, nil
}

// CursorScope joins what a cursor is bound to: tenant, mode, list, filters.
// Lengths are part of it, so ("a","bc") and ("ab","c") differ.
func CursorScope(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

// Encode makes the cursor of the rows after p.
func (c *Cursors) Encode(scope string, p Position) string {
	buf := make([]byte, 0, cursorBody+cursorTag)
	buf = append(buf, cursorVersion)
	buf = binary.BigEndian.AppendUint64(buf, uint64(p.Time.UnixMicro()))
	buf = append(buf, p.ID[:]...)
	buf = append(buf, c.tag(scope, buf)...)
	return strictBase64.EncodeToString(buf)
}

// Decode returns the position, or the cursor_invalid problem.
func (c *Cursors) Decode(scope, cursor string) (Position, error) {
	invalid := func() (Position, error) {
		return Position{}, New(CodeCursorInvalid, "The cursor does not belong to this list.").
			WithErrors(FieldError{Parameter: "cursor", Code: CodeCursorInvalid})
	}
	if len(cursor) != strictBase64.EncodedLen(cursorBody+cursorTag) || strings.ContainsAny(cursor, "\r\n") {
		return invalid()
	}
	buf, err := strictBase64.DecodeString(cursor)
	if err != nil || buf[0] != cursorVersion {
		return invalid()
	}
	if !hmac.Equal(buf[cursorBody:], c.tag(scope, buf[:cursorBody])) {
		return invalid()
	}
	p := Position{Time: time.UnixMicro(int64(binary.BigEndian.Uint64(buf[1:9]))).UTC()} //nolint:gosec // authenticated: what Encode wrote
	copy(p.ID[:], buf[9:cursorBody])
	return p, nil
}

func (c *Cursors) tag(scope string, body []byte) []byte {
	m := hmac.New(sha256.New, c.key)
	m.Write(body)
	m.Write([]byte(scope))
	return m.Sum(nil)[:cursorTag]
}
