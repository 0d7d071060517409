package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/charts/chartset"
)

// Typing errors, wrong types and what must not be are refused before anything reaches a cluster, with words that name the place.
func TestSchema_Refuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ chart, values, names string }{
		"typo of a key":                {"payment-api", "replica: 3", "replica"},
		"typo below":                   {"payment-api", "autoscaling: {minReplica: 3}", "minReplica"},
		"typo in the umbrella":         {"apipay", "payment-apis: {}", "payment-apis"},
		"typo in a part":               {"apipay", "payment-api: {replica: 3}", "replica"},
		"typo in global":               {"apipay", "global: {kafak: {}}", "kafak"},
		"typo in global below":         {"apipay", "global: {kafka: {broker: [a:1]}}", "broker"},
		"typo of a setting":            {"webhook-dispatcher", "config: {APIPAY_WEBHOOK_TIMEOUTS: 5s}", "APIPAY_WEBHOOK_TIMEOUTS"},
		"another service's setting":    {"payment-api", "config: {APIPAY_OUTBOX_BATCH: 100}", "APIPAY_OUTBOX_BATCH"},
		"setting of nobody in global":  {"apipay", "global: {config: {APIPAY_FROBNICATE: a}}", "APIPAY_FROBNICATE"},
		"text for a number":            {"payment-api", "replicas: three", "replicas"},
		"number for a list":            {"apipay", "global: {kafka: {brokers: kafka:9092}}", "brokers"},
		"text for a boolean":           {"apipay", "global: {kafka: {tls: 'yes'}}", "tls"},
		"not a duration":               {"webhook-dispatcher", "config: {APIPAY_WEBHOOK_TIMEOUT: 10}", "APIPAY_WEBHOOK_TIMEOUT"},
		"not a schedule":               {"webhook-dispatcher", "config: {APIPAY_WEBHOOK_RETRY_SCHEDULE: '1m;5m'}", "APIPAY_WEBHOOK_RETRY_SCHEDULE"},
		"not a level":                  {"apipay", "global: {config: {APIPAY_LOG_LEVEL: verbose}}", "APIPAY_LOG_LEVEL"},
		"tag latest":                   {"payment-api", "image: {tag: latest}", "tag"},
		"tag latest for all":           {"apipay", "global: {image: {tag: Latest}}", "tag"},
		"tag in the repository":        {"payment-api", "image: {repository: 'apipay/payment-api:latest'}", "repository"},
		"not a digest":                 {"payment-api", "image: {digest: 'sha256:abc'}", "digest"},
		"development":                  {"payment-api", "config: {APIPAY_DEV: true}", "APIPAY_DEV"},
		"development for all":          {"apipay", "global: {config: {APIPAY_DEV: '1'}}", "APIPAY_DEV"},
		"sandbox for real money":       {"payment-api", "config: {APIPAY_GATEWAY_LIVE: sandbox}", "APIPAY_GATEWAY_LIVE"},
		"sandbox for real money, all":  {"apipay", "global: {config: {APIPAY_GATEWAY_LIVE: sandbox}}", "APIPAY_GATEWAY_LIVE"},
		"database URL":                 {"payment-api", "config: {APIPAY_DATABASE_URL: 'postgres://a:b@c/d'}", "APIPAY_DATABASE_URL"},
		"database URL for all":         {"apipay", "global: {database: {url: 'postgres://a:b@c/d'}}", "url"},
		"Kafka password":               {"apipay", "global: {kafka: {sasl: {password: secret}}}", "password"},
		"key set":                      {"apipay", "global: {keyset: {value: '{}'}}", "value"},
		"proxy with its password":      {"webhook-dispatcher", "config: {APIPAY_WEBHOOK_PROXY_URL: 'http://a:b@c:1'}", "APIPAY_WEBHOOK_PROXY_URL"},
		"token in a header":            {"apipay", "global: {otel: {OTEL_EXPORTER_OTLP_HEADERS: 'authorization=x'}}", "OTEL_EXPORTER_OTLP_HEADERS"},
		"environment of another kind":  {"apipay", "global: {otel: {APIPAY_DEV: '1'}}", "APIPAY_DEV"},
		"SASL without a user":          {"apipay", "global: {kafka: {sasl: {mechanism: PLAIN, existingSecret: a}}}", "username"},
		"SASL without a secret":        {"apipay", "global: {kafka: {sasl: {mechanism: PLAIN, username: a}}}", "existingSecret"},
		"user without SASL":            {"apipay", "global: {kafka: {sasl: {username: a}}}", "username"},
		"brokers without a port":       {"apipay", "global: {kafka: {brokers: [kafka]}}", "brokers"},
		"no brokers":                   {"apipay", "global: {kafka: {brokers: []}}", "brokers"},
		"database for everybody":       {"apipay", "global: {database: {peers: []}}", "peers"},
		"peer that is everybody":       {"apipay", "global: {kafka: {peers: [{}]}}", "peers"},
		"clients are everybody":        {"payment-api", "networkPolicy: {clients: []}", "clients"},
		"rule for everybody":           {"outbox-relay", "networkPolicy: {extraEgress: [{ports: [{port: 80}]}]}", "extraEgress"},
		"no limits":                    {"payment-api", "resources: {limits: null}", "resources"},
		"ingress without TLS":          {"payment-api", "ingress: {enabled: true, host: api.example.com}", "tlsSecret"},
		"ingress without host":         {"admin-api", "ingress: {enabled: true, tlsSecret: a}", "host"},
		"label that is selected by":    {"payment-api", "podLabels: {app.kubernetes.io/name: other}", "app.kubernetes.io/name"},
		"metric without a target":      {"outbox-relay", "autoscaling: {externalMetrics: [{name: a}]}", "externalMetrics"},
		"metric with two targets":      {"outbox-relay", "autoscaling: {externalMetrics: [{name: a, value: 1, averageValue: 1}]}", "externalMetrics"},
		"port below 1024":              {"payment-api", "ports: {http: 80}", "http"},
		"no port of the API":           {"payment-api", "ports: {http: null}", "ports"},
		"a port for who serves nobody": {"outbox-relay", "ports: {http: 8080}", "http"},
		"job without an end":           {"migrations", "job: {activeDeadlineSeconds: 0}", "activeDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := chartset.Render(chartset.Release{Folder: built, Chart: test.chart, Values: parse(t, test.values)})
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
			require.ErrorContains(t, err, test.names)
		})
	}
}

// What matters most is refused by the templates as well, for those who skip the schema.
func TestTemplates_Refuse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ chart, values, err string }{
		"development":            {"payment-api", "config: {APIPAY_DEV: true}", "APIPAY_DEV"},
		"development for all":    {"apipay", "global: {config: {APIPAY_DEV: '1'}}", "APIPAY_DEV permits what only a development stack may do"},
		"development by otel":    {"apipay", "global: {otel: {APIPAY_DEV: '1'}}", "only OTEL_* belongs here"},
		"sandbox for real money": {"payment-api", "config: {APIPAY_GATEWAY_LIVE: sandbox}", "moves no money"},
		"tag latest":             {"payment-api", "image: {tag: latest}", "must name one build"},
		"tag latest for all":     {"apipay", "global: {image: {tag: latest}}", "must name one build"},
		"database URL":           {"payment-api", "config: {APIPAY_DATABASE_URL: 'postgres://a:b@c/d'}", "not a setting that this chart takes"},
		"database for everybody": {"outbox-relay", "global: {database: {peers: []}}", "global.database.peers must not be empty"},
		"SASL without a secret":  {"outbox-relay", "global: {kafka: {sasl: {mechanism: PLAIN, username: a}}}", "existingSecret is needed"},
		"nobody could sign in":   {"admin-api", "staffTokens: {existingSecret: ''}", "nobody could sign in"},
		"more than at most":      {"outbox-relay", "autoscaling: {minReplicas: 9}", "minReplicas is above maxReplicas"},
		"ingress without TLS":    {"payment-api", "ingress: {enabled: true, host: api.example.com}", "tlsSecret is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := chartset.Render(chartset.Release{Folder: built, Chart: test.chart, Values: parse(t, test.values), SkipSchema: true})
			require.ErrorContains(t, err, test.err)
		})
	}
}

// The schemas are those that schemagen makes of pkg/config now.
func TestSchema_IsCurrent(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, chart := range chartset.Names {
		require.NoError(t, os.Mkdir(filepath.Join(folder, chart), 0o755))
	}
	output, err := exec.CommandContext(t.Context(), "go", "run", "./schemagen", folder).CombinedOutput()
	require.NoError(t, err, string(output))
	for _, chart := range chartset.Names {
		want, err := os.ReadFile(filepath.Join(folder, chart, "values.schema.json"))
		require.NoError(t, err)
		committed, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(committed), "go generate ./... in charts makes it again")
	}
}
