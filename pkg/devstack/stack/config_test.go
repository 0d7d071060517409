package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigFromEnv(t *testing.T) {
	for name, test := range map[string]struct{ variable, value, err string }{
		"offset no number":       {"APIPAY_PORT_OFFSET", "x", "APIPAY_PORT_OFFSET=x: must be a multiple of 100 from 0 to 13000"},
		"offset no multiple":     {"APIPAY_PORT_OFFSET", "150", "must be a multiple of 100"},
		"offset negative":        {"APIPAY_PORT_OFFSET", "-100", "must be a multiple of 100"},
		"offset too large":       {"APIPAY_PORT_OFFSET", "13100", "must be a multiple of 100"},
		"offset largest":         {"APIPAY_PORT_OFFSET", "13000", ""},
		"offset empty is none":   {"APIPAY_PORT_OFFSET", "", ""},
		"replicas none":          {"RELAYS", "0", "RELAYS=0: must be a number from 1 to 64"},
		"replicas no number":     {"DISPATCHERS", "two", "DISPATCHERS=two: must be a number"},
		"replicas too many":      {"PAYMENT_APIS", "65", "PAYMENT_APIS=65: must be a number"},
		"replicas empty is none": {"RELAYS", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("APIPAY_DEV_DIR", t.TempDir())
			t.Setenv(test.variable, test.value)
			_, err := ConfigFromEnv()
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}

func TestServiceEnv(t *testing.T) {
	t.Parallel()
	cfg := Config{Environ: []string{
		"HOME=/home/me",
		"APIPAY_DEV_DIR=/x", "APIPAY_PORT_OFFSET=100", "APIPAY_POSTGRES_BIN=/y", // the stack's own
		"APIPAY_DATABASE_URL=postgres://elsewhere", "APIPAY_DATABASE_URL_FILE=/z", "APIPAY_OPS_ADDR=:1", // fixed by the layout
		"APIPAY_WEBHOOK_TIMEOUT=3s", "APIPAY_GATEWAY_LIVE=", // the caller's choice
	}}
	env := serviceEnv(cfg, &secrets{RolePasswords: map[string]string{"app": "secret"}}, "/tokens", "/keyset")
	require.Equal(t, map[string]string{
		"APIPAY_DATABASE_URL":        "postgres://apipay_app:secret@127.0.0.1:15432/apipay?sslmode=disable",
		"APIPAY_DEV":                 "1",
		"APIPAY_GATEWAY_LIVE":        "",
		"APIPAY_SECRETS_KEYSET_FILE": "/keyset",
		"APIPAY_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8,::1/128",
		"APIPAY_WEBHOOK_TIMEOUT":     "3s",
	}, env[PaymentAPI])
	require.Equal(t, "127.0.0.1:19092", env[OutboxRelay]["APIPAY_KAFKA_BROKERS"])
	require.NotContains(t, env[AdminAPI], "APIPAY_KAFKA_BROKERS")
	require.Equal(t, []string{"HOME=/home/me", "APIPAY_A=1", "APIPAY_B=2"},
		processEnv(cfg.Environ, map[string]string{"APIPAY_B": "2", "APIPAY_A": "1"}))
}
