package telemetry

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"
)

// healthy is an hour of a hub at work, a point per minute.
const healthy = `
	apipay_outbox_oldest_pending_seconds{job="outbox-relay",instance="a",topic="apipay.outbound-webhooks.v1"} 0.2x60
	apipay_outbox_blocked{job="outbox-relay",instance="a"} 0x60
	apipay_outbox_parked{job="outbox-relay",instance="a"} 0x60
	apipay_partition_default_bytes{job="outbox-relay",instance="a",table="outbox_events"} 0x60
	apipay_webhook_consumer_lag{job="webhook-dispatcher",instance="a"} 12x60
	apipay_webhook_oldest_due_seconds{job="webhook-dispatcher",instance="a"} 3x60
	apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="succeeded",error_class=""} 0+6000x60
	apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="failed",error_class="timeout"} 0+120x60
	apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="failed",error_class="status"} 0+240x60
	apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="given_back",error_class=""} 0x60
	apipay_webhook_leases_lost_total{job="webhook-dispatcher",instance="a"} 0x30 4x30
	apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="a",le="0.5"} 0+6000x60
	apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="a",le="30"} 0+6360x60
	apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="a",le="120"} 0+6360x60
	apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="a",le="+Inf"} 0+6360x60
	apipay_webhook_endpoints_unreachable{job="admin-api",instance="a"} 3x60
	apipay_webhook_endpoints_disabled{job="admin-api",instance="a",reason="failing"} 7x80
	apipay_webhook_endpoints_disabled{job="admin-api",instance="a",reason="gone"} 1x80
	apipay_webhook_quarantine{job="admin-api",instance="a"} 0x60
	apipay_webhook_secrets_stale{job="webhook-dispatcher",instance="a"} 0x60
	apipay_payment_unknown_oldest_seconds{job="admin-api",instance="a"} 45x60
	apipay_gateway_call_duration_seconds_count{job="payment-api",instance="a",kind="charge",outcome="succeeded"} 0+600x60
	apipay_gateway_call_duration_seconds_count{job="payment-api",instance="a",kind="charge",outcome="declined"} 0+200x60
	apipay_gateway_call_duration_seconds_count{job="payment-api",instance="a",kind="charge",outcome="unknown"} 0+6x60
	http_server_request_duration_seconds_count{job="payment-api",instance="a",http_route="/v1/payment-intents",http_request_method="POST",http_response_status_class="2xx"} 0+3000x60
	http_server_request_duration_seconds_count{job="payment-api",instance="a",http_route="/v1/payment-intents",http_request_method="POST",http_response_status_class="5xx"} 0+1x60
	http_server_request_duration_seconds_bucket{job="payment-api",instance="a",http_route="/v1/payment-intents",http_request_method="GET",http_response_status_class="2xx",le="0.1"} 0+3000x60
	http_server_request_duration_seconds_bucket{job="payment-api",instance="a",http_route="/v1/payment-intents",http_request_method="GET",http_response_status_class="2xx",le="5"} 0+3001x60
	http_server_request_duration_seconds_bucket{job="payment-api",instance="a",http_route="/v1/payment-intents",http_request_method="GET",http_response_status_class="2xx",le="+Inf"} 0+3001x60
	http_server_request_duration_seconds_bucket{job="payment-api",instance="a",http_route="/v1/payment-intents/:id/confirm",http_request_method="POST",http_response_status_class="2xx",le="5"} 0+10x60
	http_server_request_duration_seconds_bucket{job="payment-api",instance="a",http_route="/v1/payment-intents/:id/confirm",http_request_method="POST",http_response_status_class="2xx",le="+Inf"} 0+600x60
	up{job="payment-api",instance="a"} 1x60
	up{job="prometheus",instance="a"} 0x60
	apipay_loop_silence_seconds{job="webhook-dispatcher",instance="a",loop="claim"} 1x60
	apipay_loop_silence_seconds{job="webhook-dispatcher",instance="a",loop="retention"} 3000x60
	apipay_loop_degraded{job="payment-api",instance="a",loop="reaper"} 0x60
	apipay_loop_degraded{job="outbox-relay",instance="a",loop="kafka"} 0x20 1x5 0x35
	db_client_connection_count{job="payment-api",instance="a",db_client_connection_pool_name="payment-api",db_client_connection_state="used"} 16x60
	db_client_connection_count{job="payment-api",instance="a",db_client_connection_pool_name="payment-api",db_client_connection_state="idle"} 0x60
	db_client_connection_count{job="payment-api",instance="a",db_client_connection_pool_name="payment-api readyz",db_client_connection_state="used"} 1x60
	db_client_connection_max{job="payment-api",instance="a",db_client_connection_pool_name="payment-api"} 16x60
	db_client_connection_max{job="payment-api",instance="a",db_client_connection_pool_name="payment-api readyz"} 1x60
	apipay_db_pool_wait_seconds_total{job="payment-api",instance="a",db_client_connection_pool_name="payment-api"} 0+6x60
	db_client_connection_timeouts_total{job="payment-api",instance="a",db_client_connection_pool_name="payment-api"} 0x60
`

// faults are what is different when something is wrong, and which alert says so.
var faults = map[string]string{
	"ApiPayOutboxLag":          `apipay_outbox_oldest_pending_seconds{job="outbox-relay",instance="b",topic="apipay.audit.v1"} 0+10x60`,
	"ApiPayOutboxLagLong":      `apipay_outbox_oldest_pending_seconds{job="outbox-relay",instance="b",topic="apipay.audit.v1"} 0+60x60`,
	"ApiPayKafkaAway":          `apipay_outbox_blocked{job="outbox-relay",instance="b"} 1x60`,
	"ApiPayEventsParked":       `apipay_outbox_parked{job="outbox-relay",instance="b"} 1x60`,
	"ApiPayDefaultPartition":   `apipay_partition_default_bytes{job="outbox-relay",instance="b",table="webhook_events"} 8192x60`,
	"ApiPayConsumerLag":        `apipay_webhook_consumer_lag{job="webhook-dispatcher",instance="b"} 0+1000x60`,
	"ApiPayConsumerLagUnknown": `apipay_webhook_consumer_lag{job="webhook-dispatcher",instance="a"} -1x60`,
	"ApiPayWebhooksLate": `apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="b",le="30"} 0x60
		apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="b",le="120"} 0+3000x60
		apipay_webhook_lag_seconds_bucket{job="webhook-dispatcher",instance="b",le="+Inf"} 0+3000x60`,
	"ApiPayWebhooksStandStill": `apipay_webhook_oldest_due_seconds{job="webhook-dispatcher",instance="b"} 0+60x60
		apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="succeeded",error_class=""} 5x60
		apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="failed",error_class="timeout"} 5x60
		apipay_webhook_attempts_total{job="webhook-dispatcher",instance="a",outcome="failed",error_class="status"} 5x60`,
	"ApiPayWebhooksGivenBack":    `apipay_webhook_attempts_total{job="webhook-dispatcher",instance="b",outcome="given_back",error_class=""} 0+60x60`,
	"ApiPayLeasesLost":           `apipay_webhook_leases_lost_total{job="webhook-dispatcher",instance="b"} 0+5x60`,
	"ApiPayWebhookFailures":      `apipay_webhook_attempts_total{job="webhook-dispatcher",instance="b",outcome="failed",error_class="tls"} 0+9000x60`,
	"ApiPayEndpointsUnreachable": `apipay_webhook_endpoints_unreachable{job="admin-api",instance="b"} 40x60`,
	"ApiPayEndpointsDisabled":    `apipay_webhook_endpoints_disabled{job="admin-api",instance="a",reason="failing"} 7x40 9x40`,
	"ApiPayQuarantine":           `apipay_webhook_quarantine{job="admin-api",instance="b"} 2x60`,
	"ApiPaySecretsStale":         `apipay_webhook_secrets_stale{job="webhook-dispatcher",instance="a"} 5x1600`,
	"ApiPayUnknownOutcome":       `apipay_payment_unknown_oldest_seconds{job="admin-api",instance="b"} 0+60x60`,
	"ApiPayGatewayAnswers":       `apipay_gateway_call_duration_seconds_count{job="payment-api",instance="b",kind="charge",outcome="not_executed"} 0+100x60`,
	"ApiPayApiErrors":            `http_server_request_duration_seconds_count{job="payment-api",instance="b",http_route="/v1/events",http_request_method="GET",http_response_status_class="5xx"} 0+100x60`,
	"ApiPayApiSlow": `http_server_request_duration_seconds_bucket{job="payment-api",instance="b",http_route="/v1/events",http_request_method="GET",http_response_status_class="2xx",le="0.1"} 0x60
		http_server_request_duration_seconds_bucket{job="payment-api",instance="b",http_route="/v1/events",http_request_method="GET",http_response_status_class="2xx",le="5"} 0+300x60
		http_server_request_duration_seconds_bucket{job="payment-api",instance="b",http_route="/v1/events",http_request_method="GET",http_response_status_class="2xx",le="+Inf"} 0+300x60`,
	"ApiPayReaperStandsStill": `apipay_loop_degraded{job="payment-api",instance="b",loop="reaper"} 1x60`,
	"ApiPayTargetDown":        `up{job="apipay/webhook-dispatcher",instance="b"} 1x50 0x10`,
	"ApiPayLoopSilent":        `apipay_loop_silence_seconds{job="webhook-dispatcher",instance="b",loop="claim"} 0+5x60`,
	"ApiPayLoopDegraded":      `apipay_loop_degraded{job="webhook-dispatcher",instance="b",loop="consume"} 1x60`,
	"ApiPayPoolExhausted":     `apipay_db_pool_wait_seconds_total{job="payment-api",instance="a",db_client_connection_pool_name="payment-api"} 0+120x60`,
	"ApiPayDatabaseAway":      `db_client_connection_timeouts_total{job="payment-api",instance="a",db_client_connection_pool_name="payment-api"} 0+30x60`,
}

// besides are further alerts that a fault rightly raises.
var besides = map[string][]string{
	"ApiPayOutboxLagLong":     {"ApiPayOutboxLag"},
	"ApiPayReaperStandsStill": {"ApiPayLoopDegraded"},
}

// TestAlertsFire evaluates every rule, each minute, as Prometheus does: silent while all is well, and each fires for its
// own fault and for nothing else.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	require.Empty(t, fire(t, healthy, time.Hour), "a healthy hub")
	var all []string
	for _, group := range readAlerts(t).Groups {
		for _, rule := range group.Rules {
			all = append(all, rule.Alert)
		}
	}
	for _, alert := range all {
		fault, ok := faults[alert]
		require.True(t, ok, "%s has no fault in this test", alert)
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			length := time.Hour
			switch {
			case strings.Contains(fault, "x1600"):
				length = 26 * time.Hour
			case strings.Contains(fault, "x40"):
				length = 80 * time.Minute
			}
			want := append([]string{alert}, besides[alert]...)
			slices.Sort(want)
			require.Equal(t, want, fire(t, overlay(healthy, fault), length))
		})
	}
	require.Len(t, faults, len(all), "a fault without a rule")
}

// overlay replaces the series of healthy that the fault has, too.
func overlay(healthy, fault string) string {
	kept := []string{}
	for line := range strings.Lines(healthy) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if name == "" || !strings.Contains(fault, name+"}") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "") + "\n" + fault + "\n"
}

// fire answers the alerts that fired at any minute.
func fire(t *testing.T, series string, length time.Duration) []string {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 1m\n"+indented(series))
	defer store.Close()
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, store), Appendable: store, Queryable: storage.Queryable(store),
		Context: t.Context(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), ExternalURL: &url.URL{},
		NotifyFunc: func(_ context.Context, _ string, _ ...*rules.Alert) {},
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, alertsFile)
	require.Empty(t, errs)
	fired := map[string]bool{}
	for at := time.Unix(0, 0).UTC(); at.Before(time.Unix(0, 0).Add(length)); at = at.Add(time.Minute) {
		for _, group := range groups {
			group.Eval(t.Context(), at)
			for _, rule := range group.AlertingRules() {
				require.NoError(t, rule.LastError(), rule.Name())
				if rule.State() == rules.StateFiring {
					fired[rule.Name()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(fired))
}

// indented is what promqltest takes: every series on an indented line, and no empty ones.
func indented(series string) string {
	var lines strings.Builder
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line != "" {
			lines.WriteString("  " + line + "\n")
		}
	}
	return lines.String()
}
