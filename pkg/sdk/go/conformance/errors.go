package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	apipay "apipay.io/hub/pkg/sdk/go"
)

type errorFields struct {
	Kind              string                     `json:"kind"`
	Code              string                     `json:"code"`
	Status            int                        `json:"status,omitempty"`
	Problem           map[string]json.RawMessage `json:"problem,omitempty"`
	BodyLength        *int                       `json:"body_length,omitempty"`
	BodyPrefix        string                     `json:"body_prefix,omitempty"`
	RequestID         string                     `json:"request_id,omitempty"`
	IdempotencyKey    string                     `json:"idempotency_key,omitempty"`
	RetryAfter        string                     `json:"retry_after,omitempty"`
	RetryAfterSeconds *int64                     `json:"retry_after_seconds,omitempty"`
	Attempts          int                        `json:"attempts"`
	HasCause          bool                       `json:"has_cause,omitempty"`
}

func fieldsOf(err error) (*errorFields, error) {
	var signature *apipay.SignatureVerificationError
	if errors.As(err, &signature) {
		return &errorFields{Kind: "signature", Code: "signature_verification_failed"}, nil
	}
	var e *apipay.Error
	if !errors.As(err, &e) {
		return nil, fmt.Errorf("the SDK gave an error of another type: %w", err)
	}
	fields := &errorFields{
		Kind: string(e.Kind), Code: string(e.Code), Status: e.Status, RequestID: e.RequestID, IdempotencyKey: e.IdempotencyKey,
		RetryAfter: e.RetryAfterHeader, Attempts: e.Attempts, HasCause: e.Cause != nil,
	}
	if e.Problem != nil {
		fields.Problem = e.Problem.Members
	}
	if e.Status != 0 {
		length := len(e.Body)
		fields.BodyLength = &length
		fields.BodyPrefix = string(e.Body[:min(length, 100)])
	}
	if e.RetryAfter != nil {
		fields.RetryAfterSeconds = &e.RetryAfter.Seconds
	}
	return fields, nil
}

// plainJSON is an object's JSON with the secret that its own JSON hides.
func plainJSON(value any) (json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	endpoint, ok := value.(*apipay.WebhookEndpoint)
	if !ok || endpoint == nil || endpoint.Secret.IsZero() {
		return raw, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	if members["secret"], err = json.Marshal(endpoint.Secret.Reveal()); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// printed is every form in which a program may print the error, the client, or the result.
func (s *session) printed(value any, err error) []string {
	if err == nil && value == nil {
		client := s.client
		return append(forms(client), append(forms(*client), forms(client.PaymentIntents, client.WebhookEndpoints, client.Refunds, client.Events)...)...)
	}
	if err == nil {
		return forms(value)
	}
	all := append(forms(err), fmt.Sprint(fmt.Errorf("creating the payment: %w", err)))
	var e *apipay.Error
	if errors.As(err, &e) {
		all = append(all, forms(*e)...)
	}
	return all
}

func forms(values ...any) []string {
	var all []string
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%p"} {
			if verb == "%p" || verb == "%x" || verb == "%d" || verb == "%t" || verb == "%q" {
				// Verbs that do not suit a value make fmt print what it points to.
				all = append(all, fmt.Sprintf(verb, v))
				continue
			}
			all = append(all, fmt.Sprintf(verb, v), fmt.Sprintf(verb, []any{v}), fmt.Sprintf(verb, struct{ V any }{v}))
		}
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte(err.Error())
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("call.done", "value", v)
		slog.New(slog.NewTextHandler(&log, nil)).Info("call.done", "value", v)
		all = append(all, string(text), log.String())
	}
	return all
}
