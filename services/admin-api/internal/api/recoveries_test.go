package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
)

const recoveriesPath = "/admin/v1/recoveries"

func TestRecoveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint, other := b.endpoint(t, b.a), b.endpoint(t, b.b)
	for range 3 {
		b.delivery(t, b.a, endpoint, failed)
		b.delivery(t, b.b, other, failed)
	}
	b.delivery(t, b.a, endpoint, delivered)
	b.delivery(t, b.a, endpoint, retrying)
	dry := func(token string, filter map[string]any) any {
		t.Helper()
		got := b.ok(t, token, 200, http.MethodPost, recoveriesPath, map[string]any{"dry_run": true, "filter": filter})
		require.Nil(t, got["id"])
		require.Equal(t, true, got["dry_run"])
		return got["matched"]
	}
	require.EqualValues(t, 6, dry(supportToken, map[string]any{}))
	require.EqualValues(t, 3, dry(supportToken, map[string]any{"tenant": tenantText(b.b)}))
	require.EqualValues(t, 3, dry(supportToken, map[string]any{"endpoint": id.Format(id.Endpoint, endpoint)}))
	require.EqualValues(t, 1, dry(supportToken, map[string]any{"status": "RETRYING"}))
	require.EqualValues(t, 0, dry(supportToken, map[string]any{"event_type": "ping"}))
	require.EqualValues(t, 0, dry(supportToken, map[string]any{"failure_reason": "expired"}))
	require.EqualValues(t, 6, dry(supportToken, map[string]any{"failure_reason": "attempts_exhausted", "from": "2020-01-01T00:00:00Z"}))
	require.EqualValues(t, 0, dry(supportToken, map[string]any{"to": "2020-01-01T00:00:00+02:00"}))
	require.EqualValues(t, 3, dry(confinedToken, map[string]any{}), "confined to its tenant without being asked")
	require.Empty(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, recoveriesPath, nil)), "a dry run leaves nothing behind")
	b.exec(t, `UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'x' WHERE id = $1`, other)
	require.EqualValues(t, 3, dry(supportToken, map[string]any{}), "nothing is sent to a disabled endpoint")

	made := b.ok(t, supportToken, 201, http.MethodPost, recoveriesPath, map[string]any{
		"filter": map[string]any{"endpoint": id.Format(id.Endpoint, endpoint), "from": "2026-01-02T03:04:05.000006+01:00"},
	})
	require.Equal(t, "pending", made["status"])
	require.Equal(t, tenantText(b.a), made["tenant_id"], "an endpoint narrows to its tenant")
	require.Equal(t, false, made["livemode"])
	require.Nil(t, made["matched"], "not known before the dispatcher counted")
	require.Equal(t, "sam", made["requested_by"])
	require.Equal(t, map[string]any{
		"tenant": tenantText(b.a), "endpoint": id.Format(id.Endpoint, endpoint), "status": "FAILED", "from": "2026-01-02T02:04:05.000006Z",
	}, made["filter"])
	var stored []byte
	require.NoError(t, b.worker.QueryRow(t.Context(), `SELECT filter FROM apipay.recoveries`).Scan(&stored))
	filter, err := webhook.ParseRecoveryFilter(stored)
	require.NoError(t, err)
	require.Equal(t, webhook.StatusFailed, filter.Status)
	require.Equal(t, "recovery.create", b.lastAudit(t).Action)

	path := recoveriesPath + "/" + made["id"].(string)
	require.Equal(t, made, b.ok(t, viewerToken, 200, http.MethodGet, path, nil))
	require.Equal(t, 204, b.do(t, supportToken, http.MethodDelete, path, nil).status)
	audits := len(b.audits(t))
	require.Equal(t, 204, b.do(t, supportToken, http.MethodDelete, path, nil).status)
	require.Len(t, b.audits(t), audits)
	require.NotNil(t, b.ok(t, viewerToken, 200, http.MethodGet, path, nil)["cancel_requested_at"])
	b.exec(t, `UPDATE apipay.recoveries SET status = 'done', finished_at = now()`)
	b.problem(t, supportToken, 409, "invalid_state", http.MethodDelete, path, nil)
}

func TestRecoveries_Refusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs := id.Format(id.Endpoint, b.endpoint(t, b.b))
	for name, test := range map[string]struct {
		token, body string
		status      int
		code        string
	}{
		"no filter":           {supportToken, `{}`, 400, "parameter_missing"},
		"null filter":         {supportToken, `{"filter":null}`, 400, "invalid_request"},
		"misspelt":            {supportToken, `{"filter":{"tenants":"x"}}`, 400, "parameter_unknown"},
		"tenant as uuid":      {supportToken, `{"filter":{"tenant":"` + b.a.String() + `"}}`, 422, "parameter_invalid"},
		"all":                 {supportToken, `{"filter":{"tenant":"*"}}`, 422, "parameter_invalid"},
		"delivered":           {supportToken, `{"filter":{"status":"DELIVERED"}}`, 422, "parameter_invalid"},
		"unknown type":        {supportToken, `{"filter":{"event_type":"%"}}`, 422, "parameter_invalid"},
		"empty reason":        {supportToken, `{"filter":{"failure_reason":""}}`, 422, "parameter_invalid"},
		"unknown reason":      {supportToken, `{"filter":{"failure_reason":"attempts%"}}`, 422, "parameter_invalid"},
		"to before from":      {supportToken, `{"filter":{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}}`, 422, "parameter_invalid"},
		"year 0":              {supportToken, `{"filter":{"from":"0000-01-01T00:00:00Z"}}`, 422, "parameter_invalid"},
		"no time":             {supportToken, `{"filter":{"from":"yesterday"}}`, 400, "invalid_request"},
		"unknown tenant":      {supportToken, `{"filter":{"tenant":"` + tenantText(id.New()) + `"}}`, 404, "not_found"},
		"another's tenant":    {confinedToken, `{"filter":{"tenant":"` + tenantText(b.b) + `"}}`, 404, "not_found"},
		"another's endpoint":  {confinedToken, `{"filter":{"endpoint":"` + theirs + `"}}`, 404, "not_found"},
		"not that tenant's":   {supportToken, `{"filter":{"tenant":"` + tenantText(b.a) + `","endpoint":"` + theirs + `"}}`, 404, "not_found"},
		"another's, dry":      {confinedToken, `{"dry_run":true,"filter":{"endpoint":"` + theirs + `"}}`, 404, "not_found"},
		"dry run not boolean": {supportToken, `{"dry_run":"yes","filter":{}}`, 400, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			b.problem(t, test.token, test.status, test.code, http.MethodPost, recoveriesPath, test.body)
		})
	}
	require.Empty(t, items(t, b.ok(t, viewerToken, 200, http.MethodGet, recoveriesPath, nil)))
}

// D7: whatever a confined token asks for, what is written down never reaches another tenant's deliveries.
func TestRecoveries_NeverBeyondTheTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoints := []string{id.Format(id.Endpoint, b.endpoint(t, b.a)), id.Format(id.Endpoint, b.endpoint(t, b.b))}
	for i, tenant := range []string{"a", "b"} {
		of := b.a
		if tenant == "b" {
			of = b.b
		}
		u, err := id.Parse(id.Endpoint, endpoints[i])
		require.NoError(t, err)
		b.delivery(t, of, u, failed)
		b.delivery(t, of, u, retrying)
	}
	property := func(r *rapid.T) {
		filter := map[string]any{}
		maybe := func(name string, values ...any) {
			if i := rapid.IntRange(-1, len(values)-1).Draw(r, name); i >= 0 {
				filter[name] = values[i]
			}
		}
		maybe("tenant", tenantText(b.a), tenantText(b.b), tenantText(id.New()))
		maybe("endpoint", endpoints[0], endpoints[1], id.Format(id.Endpoint, id.New()))
		maybe("event_type", "payment_intent.succeeded", "ping")
		maybe("status", "FAILED", "RETRYING")
		maybe("failure_reason", "attempts_exhausted", "' OR true --")
		maybe("from", "2020-01-01T00:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		maybe("to", "2999-01-01T00:00:00Z")
		got, err := b.try(t.Context(), confinedToken, http.MethodPost, recoveriesPath, map[string]any{"filter": filter})
		if err != nil {
			r.Fatal(err)
		}
		if got.status == http.StatusNotFound || got.status == http.StatusUnprocessableEntity {
			return
		}
		if got.status != http.StatusCreated {
			r.Fatalf("status %d: %s", got.status, got.raw)
		}
		u, err := id.Parse(id.Recovery, got.body["id"].(string))
		if err != nil {
			r.Fatal(err)
		}
		var stored []byte
		if err := b.worker.QueryRow(t.Context(), `SELECT filter FROM apipay.recoveries WHERE id = $1`, u).Scan(&stored); err != nil {
			r.Fatal(err)
		}
		parsed, err := webhook.ParseRecoveryFilter(stored)
		if err != nil {
			r.Fatal(err)
		}
		condition, args, err := parsed.Where(nil, nil)
		if err != nil {
			r.Fatal(err)
		}
		// As the dispatcher's role, which sees every tenant.
		var foreign int
		err = b.worker.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE d.tenant_id <> '`+b.a.String()+`')
			FROM apipay.outbound_webhook_deliveries d JOIN apipay.webhook_endpoints e ON e.id = d.endpoint_id WHERE `+condition, args...).Scan(&foreign)
		if err != nil {
			r.Fatal(err)
		}
		if foreign != 0 {
			r.Fatalf("filter %v reaches %d deliveries of another tenant", filter, foreign)
		}
	}
	// rapid draws a hundred at a time.
	for range 10 {
		rapid.Check(t, property)
	}
}
