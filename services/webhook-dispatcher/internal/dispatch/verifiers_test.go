package dispatch

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripewebhook "github.com/stripe/stripe-go/v82/webhook"

	"apipay.io/hub/pkg/webhook"
)

// verifierCase is a delivery as it came over the wire, or one that somebody has tampered with.
type verifierCase struct {
	Name    string            `json:"name"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Valid   bool              `json:"valid"`
}

// D5: the verifiers that merchants use accept real deliveries, the first attempt and the last, under one secret and under
// each of two; and refuse other bodies, other secrets and other times. make test-verifiers installs those of Node and Python.
func TestVerifiers(t *testing.T) {
	t.Parallel()
	cases := recordCases(t)
	t.Run("go stripe", func(t *testing.T) {
		t.Parallel()
		for _, c := range cases {
			_, err := stripewebhook.ConstructEventWithOptions([]byte(c.Body), c.Headers["apipay-signature"], c.Secret,
				stripewebhook.ConstructEventOptions{Tolerance: 300 * time.Second, IgnoreAPIVersionMismatch: true})
			require.Equal(t, c.Valid, err == nil, "%s: %v", c.Name, err)
		}
	})
	t.Run("go standardwebhooks", func(t *testing.T) {
		t.Parallel()
		for _, c := range cases {
			verifier, err := standard.NewWebhook(c.Secret)
			require.NoError(t, err)
			header := http.Header{}
			for name, value := range c.Headers {
				header.Set(name, value)
			}
			err = verifier.Verify([]byte(c.Body), header)
			require.Equal(t, c.Valid, err == nil, "%s: %v", c.Name, err)
		}
	})
	installed := os.Getenv("VERIFIERS_DIR")
	text, err := json.Marshal(cases)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "cases.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	for name, program := range map[string][]string{
		"node":   {"node", "../../verifiers/verify.mjs"},
		"python": {filepath.Join(installed, "venv/bin/python"), "../../verifiers/verify.py"},
	} {
		t.Run(name, func(t *testing.T) {
			if installed == "" {
				t.Skip("make test-verifiers runs it")
			}
			out, err := exec.CommandContext(t.Context(), program[0], program[1], path).CombinedOutput()
			require.NoError(t, err, string(out))
			require.Equal(t, 2, strings.Count(string(out), "cases"), string(out))
			t.Log("\n" + string(out))
		})
	}
}

// recordCases lets one delivery fail until its last attempt, with one secret, and again with two.
func recordCases(t *testing.T) (cases []verifierCase) {
	t.Helper()
	b := setup(t)
	rx := newReceiver(t, status(500))
	endpointID, first := b.endpoint(rx.URL)
	d := b.dispatcher()
	b.run(d)
	for round, name := range []string{"one secret", "two secrets"} {
		secrets := []webhook.Secret{first}
		if round == 1 {
			b.exec(`UPDATE apipay.webhook_endpoint_secrets SET expires_at = now() + interval '1 day'`)
			secrets = append(secrets, b.addSecret(b.tenant, endpointID, nil))
		}
		before := len(rx.got())
		// Accents, an emoji and a number beyond 2^53: what a verifier that reads the body anew would change.
		record := b.record(b.tenant, succeeded, map[string]any{"id": "pi_x", "object": "payment_intent", "description": "é & <b> \U0001F600 \u2028",
			"amount": json.Number("9007199254740993")})
		require.NoError(t, d.materialize(t.Context(), asBatch(record)))
		eventID := idOf(t, record)
		for n := range b.config.RetrySchedule {
			b.waitFor(eventID, endpointID, "RETRYING", n+1)
			b.travel(14 * time.Hour)
		}
		b.waitFor(eventID, endpointID, "FAILED", len(b.config.RetrySchedule)+1)
		got := rx.got()[before:]
		require.Len(t, got, len(b.config.RetrySchedule)+1)
		for which, request := range map[string]received{"attempt 1": got[0], "last attempt": got[len(got)-1]} {
			for i, secret := range secrets {
				good := verifierCase{Name: strings.Join([]string{name, which, []string{"first", "second"}[i]}, ", "), Secret: secret.Reveal(),
					Headers: map[string]string{}, Body: string(request.body), Valid: true}
				for header := range request.header {
					good.Headers[strings.ToLower(header)] = request.header.Get(header)
				}
				cases = append(cases, good, tampered(good, "other body", func(c *verifierCase) { c.Body = strings.Replace(c.Body, "9007199254740993", "9007199254740992", 1) }),
					tampered(good, "other secret", func(c *verifierCase) { c.Secret = webhook.NewSecret().Reveal() }),
					tampered(good, "another's time", func(c *verifierCase) {
						stamp := c.Headers["webhook-timestamp"]
						c.Headers["webhook-timestamp"] = stamp[:len(stamp)-1] + string('0'+(stamp[len(stamp)-1]-'0'+1)%10)
						c.Headers["apipay-signature"] = strings.Replace(c.Headers["apipay-signature"], "t="+stamp, "t="+c.Headers["webhook-timestamp"], 1)
					}))
			}
		}
	}
	return cases
}

func tampered(c verifierCase, how string, change func(*verifierCase)) verifierCase {
	headers := make(map[string]string, len(c.Headers))
	for name, value := range c.Headers {
		headers[name] = value
	}
	c.Name, c.Headers, c.Valid = c.Name+", "+how, headers, false
	change(&c)
	return c
}
