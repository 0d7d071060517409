// Package id makes and reads the identifiers of ApiPay Hub: UUIDv7 in the database, TypeID text outside.
// A TypeID is a prefix, an underscore and 26 characters of lower-case Crockford base32 of the UUID
// (https://github.com/jetify-com/typeid/tree/main/spec).
package id

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.jetify.com/typeid/base32"
)

// Prefix names the kind of thing that an identifier stands for.
type Prefix string

// The kinds of identifiers.
const (
	PaymentIntent  Prefix = "pi"
	Refund         Prefix = "re"
	PaymentAttempt Prefix = "pat"
	Event          Prefix = "evt"
	Delivery       Prefix = "whd"
	Endpoint       Prefix = "we"
	Tenant         Prefix = "tnt"
	APIKey         Prefix = "key"
	Request        Prefix = "req"
	// DeliveryAttempt, Recovery, Quarantined and Audit are shown by admin-api only.
	DeliveryAttempt Prefix = "wha"
	Recovery        Prefix = "rec"
	Quarantined     Prefix = "qua"
	Audit           Prefix = "aud"
)

// ErrInvalid says that a text is not an identifier of the kind that was asked for.
var ErrInvalid = errors.New("not a valid identifier")

const suffixLength = 26

// New is a fresh UUIDv7 by the process's clock.
func New() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// NewAt is a UUIDv7 of the millisecond of t. Identifiers with the same t sort by order (0..4095), so that
// several made in one transaction keep their sequence.
func NewAt(t time.Time, order uint16) uuid.UUID {
	var u uuid.UUID
	if _, err := rand.Read(u[8:]); err != nil {
		panic(err) // crypto/rand does not fail on supported systems
	}
	binary.BigEndian.PutUint64(u[:8], uint64(t.UnixMilli())<<16|0x7000|uint64(order&0x0fff))
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Time is the millisecond that a UUIDv7 carries.
func Time(u uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(u[:8]) >> 16))
}

// SameMillisecond are the smallest and the largest UUID of u's millisecond, both inclusive: the range of
// event ids in which a delivery or an attempt that carries the same millisecond is found.
func SameMillisecond(u uuid.UUID) (low, high uuid.UUID) {
	copy(low[:6], u[:6])
	copy(high[:6], u[:6])
	for i := 6; i < 16; i++ {
		high[i] = 0xff
	}
	return low, high
}

// Format is the text of u as a p.
func Format(p Prefix, u uuid.UUID) string { return string(p) + "_" + base32.Encode(u) }

// Parse reads a text that must be a p: exact prefix, lower case, no overflow. It fails with [ErrInvalid].
func Parse(p Prefix, text string) (uuid.UUID, error) {
	prefixLength := len(p) + 1
	if len(text) != prefixLength+suffixLength || text[:prefixLength] != string(p)+"_" {
		return uuid.Nil, ErrInvalid
	}
	suffix := text[prefixLength:]
	// 26 characters hold 130 bits: the first one carries only three.
	if suffix[0] > '7' {
		return uuid.Nil, ErrInvalid
	}
	decoded, err := base32.Decode(suffix)
	if err != nil {
		return uuid.Nil, ErrInvalid
	}
	u := uuid.UUID(decoded)
	// One text per value: whatever the decoder tolerates beyond the canonical form is refused.
	if base32.Encode(u) != suffix {
		return uuid.Nil, ErrInvalid
	}
	return u, nil
}
