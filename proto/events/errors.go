package events

import (
	"errors"
	"strings"
)

// Why a value is no event of this contract. Errors of this package wrap exactly one of these; trying again never helps.
var (
	// ErrNotJSON: not one JSON text of valid Unicode without U+0000; empty values included.
	ErrNotJSON = errors.New("not JSON")
	// ErrTooLarge: more than MaxSize bytes, or nested too deeply.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: JSON, but a field is missing, ambiguous, or not of its type.
	ErrInvalid = errors.New("invalid event")
	// ErrUnknownType: well formed, of a type that this build does not know. A newer build may.
	ErrUnknownType = errors.New("unknown event type")
	// ErrUnsupportedVersion: names another api_version than [APIVersion]. A newer build may know it.
	ErrUnsupportedVersion = errors.New("unsupported api_version")
)

var reasons = map[error]string{
	ErrNotJSON:            "not_json",
	ErrTooLarge:           "too_large",
	ErrInvalid:            "invalid_event",
	ErrUnknownType:        "unknown_type",
	ErrUnsupportedVersion: "unknown_version",
}

// Reason answers the word under which a value refused with err is quarantined, "" if err is none of this package.
func Reason(err error) string {
	for kind, reason := range reasons {
		if errors.Is(err, kind) {
			return reason
		}
	}
	return ""
}

const maxDetail = 300

// refusal is a kind of error with its detail, which comes from hostile bytes: it is bounded and fit for a text column.
type refusal struct {
	kind   error
	detail string
}

func refuse(kind error, detail string) error {
	detail = strings.ToValidUTF8(detail, "\uFFFD")
	detail = strings.ReplaceAll(detail, "\x00", "\uFFFD")
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "..."
	}
	return &refusal{kind: kind, detail: detail}
}

func (r *refusal) Error() string { return r.kind.Error() + ": " + r.detail }

func (r *refusal) Unwrap() error { return r.kind }
