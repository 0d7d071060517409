package webhook

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"apipay.io/hub/pkg/id"
)

// RecoveryFilter says which deliveries a recovery sends again. Its JSON is recoveries.filter, which admin-api and
// payment-api write and the dispatcher works through; members that are left out do not narrow.
type RecoveryFilter struct {
	// Tenant is tnt_ text. Row level security confines whoever counts; the dispatcher, which sees all, has this.
	Tenant string `json:"tenant,omitzero"`
	// Endpoint is we_ text.
	Endpoint  string `json:"endpoint,omitzero"`
	EventType string `json:"event_type,omitzero"`
	// Status is FAILED or RETRYING; left out it is FAILED.
	Status        DeliveryStatus `json:"status,omitzero"`
	FailureReason string         `json:"failure_reason,omitzero"`
	// From (inclusive) and To (exclusive) bound when the delivery failed; for a RETRYING one, when it was created.
	From *time.Time `json:"from,omitzero"`
	To   *time.Time `json:"to,omitzero"`
}

// ErrFilterInvalid is returned for a stored filter that cannot be read. It must never be taken for a wider one.
var ErrFilterInvalid = errors.New("not a recovery filter")

// ParseRecoveryFilter reads recoveries.filter.
func ParseRecoveryFilter(raw []byte) (RecoveryFilter, error) {
	var f RecoveryFilter
	if err := json.Unmarshal(raw, &f, json.RejectUnknownMembers(true)); err != nil {
		return f, fmt.Errorf("%w: %w", ErrFilterInvalid, err)
	}
	if _, _, err := f.Where(nil, nil); err != nil {
		return f, err
	}
	return f, nil
}

// Where is the condition over apipay.outbound_webhook_deliveries AS d and its endpoint AS e, and the values it binds:
// args and then its own, so that placeholders continue those of the caller's. livemode nil is both modes. It selects
// only what may be sent: the endpoint is enabled and nobody is sending the delivery. The status is part of the text,
// not bound, because the partial indexes depend on it.
func (f RecoveryFilter) Where(livemode *bool, args []any) (condition string, bound []any, err error) {
	var conditions []string
	add := func(text string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf(text, len(args)))
	}
	since := "d.failed_at"
	switch f.Status {
	case "", StatusFailed:
		conditions = append(conditions, "d.status = 'FAILED'")
	case StatusRetrying:
		conditions = append(conditions, "d.status = 'RETRYING' AND d.lease_until IS NULL")
		since = "d.created_at"
	case StatusPending, StatusDelivered:
		return "", nil, fmt.Errorf("%w: status %q is not sent again", ErrFilterInvalid, f.Status)
	default:
		return "", nil, fmt.Errorf("%w: no status %q", ErrFilterInvalid, f.Status)
	}
	conditions = append(conditions, "e.status = 'enabled' AND e.deleted_at IS NULL")
	for _, of := range []struct {
		text, column string
		prefix       id.Prefix
	}{{f.Tenant, "d.tenant_id", id.Tenant}, {f.Endpoint, "d.endpoint_id", id.Endpoint}} {
		if of.text == "" {
			continue
		}
		var u uuid.UUID
		if u, err = id.Parse(of.prefix, of.text); err != nil {
			return "", nil, fmt.Errorf("%w: no %s id", ErrFilterInvalid, of.prefix)
		}
		add(of.column+" = $%d", u)
	}
	if livemode != nil {
		add("d.livemode = $%d", *livemode)
	}
	if f.EventType != "" {
		add("d.event_type = $%d", f.EventType)
	}
	if f.FailureReason != "" {
		add("d.failure_reason = $%d", f.FailureReason)
	}
	if f.From != nil {
		add(since+" >= $%d", *f.From)
	}
	if f.To != nil {
		add(since+" < $%d", *f.To)
	}
	return strings.Join(conditions, " AND "), args, nil
}
