package endpoints

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/proto/events"
)

const (
	// maxPerMode bounds the endpoints of one tenant and mode: each event is matched against all of them.
	maxPerMode     = 100
	maxDescription = 500
	allEvents      = "*"
	// maxUnix is the last second of the year 9999.
	maxUnix = 253402300799
)

var subscribable = events.Types(events.TopicOutboundWebhooks)

func invalid(pointer, detail string) httpapi.FieldError {
	return httpapi.FieldError{Pointer: pointer, Code: httpapi.CodeParameterInvalid, Detail: detail}
}

// refuse makes one problem of all that is wrong, or nil.
func refuse(fields []httpapi.FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	return httpapi.InvalidFields(fields...)
}

func (e *Endpoints) checkURL(url string) []httpapi.FieldError {
	if err := e.Policy.CheckURL(url); err != nil {
		// The policy's errors are written to be shown: they quote no URL and no resolved address.
		return []httpapi.FieldError{invalid("/url", "url: "+err.Error()+".")}
	}
	return nil
}

func checkEvents(list []string) (fields []httpapi.FieldError) {
	if len(list) == 0 {
		return []httpapi.FieldError{invalid("/enabled_events", `Name at least one event type, or "*" for all.`)}
	}
	if len(list) > len(subscribable) {
		return []httpapi.FieldError{invalid("/enabled_events", "There are fewer event types than that.")}
	}
	for i, name := range list {
		pointer := fmt.Sprintf("/enabled_events/%d", i)
		switch {
		case slices.Contains(list[:i], name):
			fields = append(fields, invalid(pointer, "The event type is named twice."))
		case name == allEvents && len(list) > 1:
			fields = append(fields, invalid(pointer, `"*" stands for all event types and must be the only one.`))
		case name != allEvents && !slices.Contains(subscribable, name):
			fields = append(fields, invalid(pointer, "There is no such event type."))
		}
	}
	return fields
}

func checkDescription(text *string) []httpapi.FieldError {
	if text != nil && utf8.RuneCountInString(*text) > maxDescription {
		return []httpapi.FieldError{invalid("/description", fmt.Sprintf("The description is longer than %d characters.", maxDescription))}
	}
	return nil
}
