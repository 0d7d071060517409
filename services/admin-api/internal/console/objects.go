package console

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// The API's objects, as far as the pages show them. Their meaning is in the API's document.

type tenant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type delivery struct {
	ID            string     `json:"id"`
	TenantID      string     `json:"tenant_id"`
	Livemode      bool       `json:"livemode"`
	EndpointID    string     `json:"endpoint_id"`
	EndpointURL   string     `json:"endpoint_url"`
	EventID       string     `json:"event_id"`
	EventType     string     `json:"event_type"`
	Status        string     `json:"status"`
	AttemptCount  int        `json:"attempt_count"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	Held          *string    `json:"held"`
	DeliveredAt   *time.Time `json:"delivered_at"`
	FailedAt      *time.Time `json:"failed_at"`
	FailureReason *string    `json:"failure_reason"`
	CreatedAt     time.Time  `json:"created_at"`
	Attempts      []attempt  `json:"attempts"`
}

// Last is the newest attempt, or nil before the first.
func (d delivery) Last() *attempt {
	if len(d.Attempts) == 0 {
		return nil
	}
	return &d.Attempts[len(d.Attempts)-1]
}

// IsOpen says whether the dispatcher has still something to do.
func (d delivery) IsOpen() bool { return d.Status == statusPending || d.Status == statusRetrying }

type attempt struct {
	Number          int            `json:"number"`
	Trigger         string         `json:"trigger"`
	Outcome         string         `json:"outcome"`
	StartedAt       time.Time      `json:"started_at"`
	LatencyMS       *int           `json:"latency_ms"`
	PhasesMS        map[string]int `json:"phases_ms"`
	RemoteIP        *string        `json:"remote_ip"`
	StatusCode      *int           `json:"status_code"`
	ErrorClass      *string        `json:"error_class"`
	ResponseExcerpt *string        `json:"response_excerpt"`
}

type event struct {
	ID               string          `json:"id"`
	TenantID         string          `json:"tenant_id"`
	Livemode         bool            `json:"livemode"`
	Type             string          `json:"type"`
	Topic            string          `json:"topic"`
	CreatedAt        time.Time       `json:"created_at"`
	PublishedAt      *time.Time      `json:"published_at"`
	KafkaPartition   *int            `json:"kafka_partition"`
	KafkaOffset      *int64          `json:"kafka_offset"`
	ParkedAt         *time.Time      `json:"parked_at"`
	ParkedReason     *string         `json:"parked_reason"`
	DiscardedAt      *time.Time      `json:"discarded_at"`
	ReceivedAt       *time.Time      `json:"received_at"`
	EndpointsMatched *int            `json:"endpoints_matched"`
	Deliveries       []delivery      `json:"deliveries"`
	NoDeliveryReason *string         `json:"no_delivery_reason"`
	QuarantineReason *string         `json:"quarantine_reason"`
	Endpoints        []eventEndpoint `json:"endpoints"`
}

type eventEndpoint struct {
	ID      string  `json:"id"`
	URL     string  `json:"url"`
	Status  string  `json:"status"`
	Matched bool    `json:"matched"`
	Reason  *string `json:"reason"`
}

type endpoint struct {
	ID             string         `json:"id"`
	TenantID       string         `json:"tenant_id"`
	Livemode       bool           `json:"livemode"`
	URL            string         `json:"url"`
	EnabledEvents  []string       `json:"enabled_events"`
	Description    *string        `json:"description"`
	Status         string         `json:"status"`
	DisabledReason *string        `json:"disabled_reason"`
	CreatedAt      time.Time      `json:"created_at"`
	DeletedAt      *time.Time     `json:"deleted_at"`
	Health         endpointHealth `json:"health"`
}

type endpointHealth struct {
	FailingSince    *time.Time `json:"failing_since"`
	FailedAttempts  *int       `json:"failed_attempts"`
	LastFailureAt   *time.Time `json:"last_failure_at"`
	LastSuccessAt   *time.Time `json:"last_success_at"`
	BreakerOpenedAt *time.Time `json:"breaker_opened_at"`
	NextProbeAt     *time.Time `json:"next_probe_at"`
	Succeeded24h    int64      `json:"succeeded_24h"`
	Failed24h       int64      `json:"failed_24h"`
}

// Condition is one word for how the endpoint is.
func (e endpoint) Condition() string {
	switch {
	case e.DeletedAt != nil:
		return "deleted"
	case e.Status != statusEnabled:
		return "disabled"
	case e.Health.BreakerOpenedAt != nil:
		return "unreachable"
	case e.Health.FailingSince != nil:
		return "failing"
	case e.Health.LastSuccessAt == nil:
		return "unused"
	}
	return "healthy"
}

type healthSeries struct {
	From  time.Time    `json:"from"`
	To    time.Time    `json:"to"`
	Hours []healthHour `json:"hours"`
}

type healthHour struct {
	Hour        time.Time `json:"hour"`
	Succeeded   int64     `json:"succeeded"`
	Failed      int64     `json:"failed"`
	SuccessRate *float64  `json:"success_rate"`
	LatencyMS   struct {
		P50 *float64 `json:"p50"`
		P95 *float64 `json:"p95"`
		P99 *float64 `json:"p99"`
	} `json:"latency_ms"`
	Failures map[string]int64 `json:"failures"`
}

type recovery struct {
	ID                *string        `json:"id"`
	TenantID          *string        `json:"tenant_id"`
	Filter            recoveryFilter `json:"filter"`
	Status            *string        `json:"status"`
	Matched           *int64         `json:"matched"`
	Queued            int64          `json:"queued"`
	RequestedBy       string         `json:"requested_by"`
	CancelRequestedAt *time.Time     `json:"cancel_requested_at"`
	CreatedAt         *time.Time     `json:"created_at"`
	FinishedAt        *time.Time     `json:"finished_at"`
}

// IsOpen says whether the dispatcher still works on it.
func (r recovery) IsOpen() bool { return r.FinishedAt == nil }

type recoveryFilter struct {
	Tenant        string `json:"tenant,omitzero"`
	Endpoint      string `json:"endpoint,omitzero"`
	EventType     string `json:"event_type,omitzero"`
	Status        string `json:"status,omitzero"`
	FailureReason string `json:"failure_reason,omitzero"`
	From          string `json:"from,omitzero"`
	To            string `json:"to,omitzero"`
}

// Since names what From and To bound.
func (f recoveryFilter) Since() string {
	if f.Status == statusRetrying {
		return "Created"
	}
	return "Failed"
}

type topicLag struct {
	Topic                   string     `json:"topic"`
	OldestPendingAt         *time.Time `json:"oldest_pending_at"`
	OldestPendingAgeSeconds *float64   `json:"oldest_pending_age_seconds"`
	Parked                  *int64     `json:"parked"`
	ParkedAtLeast           *int64     `json:"parked_at_least"`
}

type parkedEvent struct {
	ID                string     `json:"id"`
	TenantID          string     `json:"tenant_id"`
	Topic             string     `json:"topic"`
	Type              string     `json:"type"`
	Bytes             int        `json:"bytes"`
	CreatedAt         time.Time  `json:"created_at"`
	ParkedAt          *time.Time `json:"parked_at"`
	ParkedReason      *string    `json:"parked_reason"`
	ReplayRequestedAt *time.Time `json:"replay_requested_at"`
	LastReplayAt      *time.Time `json:"last_replay_at"`
}

type quarantined struct {
	ID                string     `json:"id"`
	TenantID          *string    `json:"tenant_id"`
	Topic             string     `json:"topic"`
	Partition         int        `json:"partition"`
	Offset            int64      `json:"offset"`
	Bytes             *int       `json:"bytes"`
	Reason            string     `json:"reason"`
	Detail            *string    `json:"detail"`
	CreatedAt         time.Time  `json:"created_at"`
	ReplayRequestedAt *time.Time `json:"replay_requested_at"`
	LastReplayAt      *time.Time `json:"last_replay_at"`
	ReplayedAt        *time.Time `json:"replayed_at"`
}

type paymentAttempt struct {
	ID               string     `json:"id"`
	TenantID         string     `json:"tenant_id"`
	Livemode         bool       `json:"livemode"`
	PaymentIntent    string     `json:"payment_intent"`
	Refund           *string    `json:"refund"`
	Kind             string     `json:"kind"`
	Number           int        `json:"number"`
	Status           string     `json:"status"`
	Amount           int64      `json:"amount"`
	Currency         string     `json:"currency"`
	Gateway          string     `json:"gateway"`
	DeclineCode      *string    `json:"decline_code"`
	NextCheckAt      *time.Time `json:"next_check_at"`
	CheckCount       int        `json:"check_count"`
	ResolvableAt     *time.Time `json:"resolvable_at"`
	Resolution       *string    `json:"resolution"`
	ResolutionReason *string    `json:"resolution_reason"`
	ResolvedBy       *string    `json:"resolved_by"`
	CreatedAt        time.Time  `json:"created_at"`
	FinishedAt       *time.Time `json:"finished_at"`
}

type intent struct {
	ID                string           `json:"id"`
	TenantID          string           `json:"tenant_id"`
	Livemode          bool             `json:"livemode"`
	Amount            int64            `json:"amount"`
	AmountRefunded    int64            `json:"amount_refunded"`
	Currency          string           `json:"currency"`
	Status            string           `json:"status"`
	Description       *string          `json:"description"`
	MerchantReference *string          `json:"merchant_reference"`
	PaymentMethod     *string          `json:"payment_method"`
	LastPaymentError  jsontext.Value   `json:"last_payment_error"`
	CreatedAt         time.Time        `json:"created_at"`
	Attempts          []paymentAttempt `json:"attempts"`
	Refunds           []refund         `json:"refunds"`
}

type refund struct {
	ID            string    `json:"id"`
	PaymentIntent string    `json:"payment_intent"`
	Amount        int64     `json:"amount"`
	Currency      string    `json:"currency"`
	Status        string    `json:"status"`
	FailureReason *string   `json:"failure_reason"`
	Reason        *string   `json:"reason"`
	CreatedAt     time.Time `json:"created_at"`
}

type auditEntry struct {
	ID        string         `json:"id"`
	TenantID  string         `json:"tenant_id"`
	Actor     string         `json:"actor"`
	Role      string         `json:"role"`
	Action    string         `json:"action"`
	Target    string         `json:"target"`
	RequestID *string        `json:"request_id"`
	IP        *string        `json:"ip"`
	Changes   jsontext.Value `json:"changes"`
	CreatedAt time.Time      `json:"created_at"`
}
