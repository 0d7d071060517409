package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// scopes are all that a merchant's key can have.
var scopes = []string{
	"payment_intents:read", "payment_intents:write", "refunds:read", "refunds:write",
	"webhook_endpoints:read", "webhook_endpoints:write", "events:read",
}

// provideDemo makes the demo tenant and its keys through admin-api, or keeps those of an earlier start that still work.
func (s *Stack) provideDemo(ctx context.Context) error {
	keys := &s.secrets.Demo
	info := s.Info()
	if keys.TenantID != "" && keyKnown(ctx, info.URLs.PaymentAPI, keys.TestKey) && keyKnown(ctx, info.URLs.PaymentAPI, keys.LiveKey) {
		return nil
	}
	tenants := info.URLs.AdminAPI + "/admin/v1/tenants"
	token := s.secrets.Tokens["admin"]
	var tenant struct {
		ID string `json:"id"`
	}
	if err := Call(ctx, http.MethodPost, tenants, token, map[string]any{"name": "Demo Shop"}, &tenant); err != nil {
		return err
	}
	made := demoKeys{TenantID: tenant.ID}
	for livemode, target := range map[bool]*string{false: &made.TestKey, true: &made.LiveKey} {
		var created struct {
			Secret string `json:"secret"`
		}
		request := map[string]any{"livemode": livemode, "scopes": scopes}
		if err := Call(ctx, http.MethodPost, tenants+"/"+tenant.ID+"/api-keys", token, request, &created); err != nil {
			return err
		}
		*target = created.Secret
	}
	if made.TenantID == "" || made.TestKey == "" || made.LiveKey == "" {
		return errors.New("admin-api answered without the tenant's id or a key's secret")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*keys = made
	return s.secrets.save(s.cfg)
}

// keyKnown is false only when payment-api says so: another trouble is no reason to give up a tenant with its data.
func keyKnown(ctx context.Context, paymentAPI, key string) bool {
	var status *StatusError
	err := Call(ctx, http.MethodGet, paymentAPI+"/v1/payment-intents?limit=1", key, nil, nil)
	return !errors.As(err, &status) || status.Code != http.StatusUnauthorized
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	Method, URL string
	Code        int
	Body        string // a problem document
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s answers %d: %s", e.Method, e.URL, e.Code, e.Body)
}

// Call sends one JSON request with a bearer token to an API of the stack and reads its answer; a status other than 2xx is a
// StatusError.
func Call(ctx context.Context, method, url, token string, request, answer any, headers ...string) error {
	var body io.Reader = http.NoBody
	if request != nil {
		encoded, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if request != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	response, err := caller.Do(req)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return &StatusError{Method: method, URL: url, Code: response.StatusCode, Body: string(bytes.TrimSpace(content))}
	}
	if answer == nil || len(content) == 0 {
		return nil
	}
	return json.Unmarshal(content, answer)
}

var caller = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
