package console

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	statusPending   = "PENDING"
	statusRetrying  = "RETRYING"
	statusDelivered = "DELIVERED"
	statusFailed    = "FAILED"
	statusEnabled   = "enabled"
)

// tone is the color of a state: good, bad, warn, busy or plain. The word is always there beside it.
func tone(state string) string {
	switch state {
	case statusDelivered, "succeeded", "healthy", "done", statusEnabled:
		return "good"
	case statusFailed, "failed", "failing", "unreachable", "lost", "declined", "parked":
		return "bad"
	case statusRetrying, "unknown", "disabled", "superseded", "not_executed", "requires_payment_method":
		return "warn"
	case statusPending, "pending", "running", "processing", "started":
		return "busy"
	}
	return "plain"
}

var reasons = map[string]string{
	"attempts_exhausted":     "All attempts failed; nothing more is sent by itself.",
	"expired":                "It could not be sent within seven days.",
	"endpoint_disabled":      "The endpoint was disabled when it was due.",
	"endpoint_deleted":       "The endpoint was deleted.",
	"endpoint_unreachable":   "The endpoint cannot be reached. It is probed every 30 seconds, and this is sent when it answers.",
	"not_published":          "The event waits in the outbox and will be published by the relay.",
	"parked":                 "The event was parked: the broker refuses it. See the outbox page.",
	"discarded":              "The event was given up by hand and will not be published.",
	"published_not_received": "The event is in Kafka; the dispatcher has not received it yet.",
	"quarantined":            "The dispatcher could not process the record. See the quarantine page.",
	"not_a_webhook_event":    "Events of this topic are not sent to endpoints.",
	"no_endpoint_matched":    "No endpoint of the tenant was subscribed to this event when it happened.",
}

func reasonText(code string) string {
	if text, ok := reasons[code]; ok {
		return text
	}
	return strings.ReplaceAll(code, "_", " ")
}

// phase is a part of an attempt's time, as a piece of a bar that is 1000 wide.
type phase struct {
	Name, Class string
	MS          int
	X, Width    float64
}

// phases splits an attempt's time: looking the name up, connecting, the handshake, waiting for the first byte, reading.
func phases(a attempt) []phase {
	total := a.PhasesMS["total"]
	if total <= 0 && a.LatencyMS != nil {
		total = *a.LatencyMS
	}
	if total <= 0 {
		return nil
	}
	before := a.PhasesMS["dns"] + a.PhasesMS["connect"] + a.PhasesMS["tls"]
	parts := []phase{
		{Name: "DNS", Class: "dns", MS: a.PhasesMS["dns"]},
		{Name: "connect", Class: "connect", MS: a.PhasesMS["connect"]},
		{Name: "TLS", Class: "tls", MS: a.PhasesMS["tls"]},
	}
	if first := a.PhasesMS["first_byte"]; first > 0 {
		parts = append(parts, phase{Name: "waiting", Class: "wait", MS: max(first-before, 0)},
			phase{Name: "reading", Class: "read", MS: max(total-max(first, before), 0)})
	} else {
		parts = append(parts, phase{Name: "waiting", Class: "wait", MS: max(total-before, 0)})
	}
	parts = slices.DeleteFunc(parts, func(p phase) bool { return p.MS <= 0 })
	x := 0.0
	for i := range parts {
		parts[i].X, parts[i].Width = x, 1000*float64(parts[i].MS)/float64(total)
		x += parts[i].Width
	}
	return parts
}

var classes = map[string]string{
	"status": "", "dns": "name not found", "blocked": "address not allowed", "refused": "connection refused",
	"connect": "cannot connect", "reset": "connection reset", "protocol": "not HTTP", "redirect": "redirect, not followed",
	"tls": "TLS failed", "tls_expired": "certificate expired", "tls_name": "certificate for another name",
	"tls_untrusted": "certificate not trusted", "connect_timeout": "connect timeout", "timeout": "no answer in time",
}

// classWord is classText where no status code stands beside it.
func classWord(class string) string {
	if class == "status" {
		return "error status"
	}
	return classText(class)
}

// classText says what an error class means; nothing for one that only repeats the status code beside it.
func classText(class string) string {
	if text, ok := classes[class]; ok {
		return text
	}
	return strings.ReplaceAll(class, "_", " ")
}

type change struct{ Name, Value string }

// changes lists the members of an audit entry's changes, in their order of names.
func changes(raw jsontext.Value) []change {
	var members map[string]jsontext.Value
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	list := make([]change, 0, len(members))
	for name, value := range members {
		text := plainText(value)
		list = append(list, change{name, text})
	}
	slices.SortFunc(list, func(a, b change) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// plainText shows JSON as people read it: texts without quotes, lists with commas, members as name: value.
func plainText(value jsontext.Value) string {
	switch value.Kind() {
	case 'n':
		return "–"
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		return text
	case '[':
		var items []jsontext.Value
		_ = json.Unmarshal(value, &items)
		texts := make([]string, len(items))
		for i, item := range items {
			texts[i] = plainText(item)
		}
		return strings.Join(texts, ", ")
	case '{':
		var texts []string
		for _, member := range changes(value) {
			texts = append(texts, strings.ReplaceAll(member.Name, "_", " ")+": "+member.Value)
		}
		return strings.Join(texts, ", ")
	}
	return string(value)
}
