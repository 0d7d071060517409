package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/config"
	"apipay.io/hub/pkg/webhook"
)

func TestConfig_NamesArePublished(t *testing.T) {
	t.Parallel()
	published := map[string][]string{}
	for _, v := range config.Variables {
		published[v.Name] = v.Services
	}
	for _, name := range config.Names(Config{}) {
		name = strings.TrimSuffix(name, "_FILE") // any secret may come from a file
		require.Contains(t, published[name], "webhook-dispatcher", name)
	}
	for name, services := range published {
		if slices.Contains(services, "webhook-dispatcher") {
			require.Contains(t, config.Names(Config{}), name)
		}
	}
}

// A4, and every other value that cannot be used: one line that names the setting.
func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	keyset, err := webhook.NewKeysetJSON()
	require.NoError(t, err)
	good := []string{"APIPAY_DATABASE_URL=postgres://x", "APIPAY_KAFKA_BROKERS=127.0.0.1:1", "APIPAY_SECRETS_KEYSET=" + keyset}
	cfg, err := config.Load[Config](good)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 12 * time.Hour}, cfg.RetrySchedule)
	require.Equal(t, 10*time.Second, cfg.Timeout)
	require.Equal(t, time.Minute, cfg.Lease)
	require.Equal(t, 4, cfg.EndpointConcurrency)
	for setting, want := range map[string]string{
		"APIPAY_WEBHOOK_LEASE=29s":                     "APIPAY_WEBHOOK_LEASE must be at least APIPAY_WEBHOOK_TIMEOUT plus 20s, which is 30s",
		"APIPAY_WEBHOOK_TIMEOUT=41s":                   "APIPAY_WEBHOOK_LEASE must be at least APIPAY_WEBHOOK_TIMEOUT plus 20s, which is 1m1s",
		"APIPAY_WEBHOOK_TIMEOUT=0s":                    "APIPAY_WEBHOOK_TIMEOUT must be between 100ms and 5m",
		"APIPAY_WEBHOOK_RETRY_SCHEDULE=1m,-5m":         "APIPAY_WEBHOOK_RETRY_SCHEDULE must hold waits above 0 and up to 720h",
		"APIPAY_WEBHOOK_RETRY_SCHEDULE=1m,soon":        "APIPAY_WEBHOOK_RETRY_SCHEDULE cannot be used",
		"APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY=0":        "APIPAY_WEBHOOK_ENDPOINT_CONCURRENCY must be between 1 and 64",
		"APIPAY_WEBHOOK_ALLOW_CIDRS=10.1.2.3/8":        "APIPAY_WEBHOOK_ALLOW_CIDRS cannot be used",
		"APIPAY_WEBHOOK_PROXY_URL=socks5://u:secret@x": "APIPAY_WEBHOOK_PROXY_URL must be http://host:port or https://host:port",
		"APIPAY_WEBHOOK_DNS=127.0.0.1":                 "APIPAY_WEBHOOK_DNS must be host:port",
		"APIPAY_SECRETS_KEYSET=hello":                  "APIPAY_SECRETS_KEYSET cannot be used",
		"APIPAY_RETENTION_DELIVERIES=24h":              "APIPAY_RETENTION_DELIVERIES must be at least 720h0m0s",
	} {
		_, err := config.Load[Config](append(slices.Clone(good), setting))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret@")
	}
	longer, err := config.Load[Config](append(slices.Clone(good), "APIPAY_WEBHOOK_RETRY_SCHEDULE=1s,2s,4h,8h,24h,24h,12h"))
	require.NoError(t, err)
	require.Len(t, longer.RetrySchedule, 7)
}
