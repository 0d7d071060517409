package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/webhook"
	"apipay.io/hub/proto/events"
)

type body = map[string]any

func (m merchant) endpoint(t testing.TB) answer {
	t.Helper()
	a := m.call(t, http.MethodPost, endpointsPath, body{"url": "https://merchant.example/hook", "enabled_events": []string{"*"}})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return a
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("CreateReadListDelete", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		a := m.call(t, http.MethodPost, endpointsPath, body{
			"url": "https://merchant.example/hook", "enabled_events": []string{"payment_intent.succeeded", "refund.failed"},
			"description": "A&B <b> \u2028 😀",
		})
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		require.Equal(t, "/v1/webhook-endpoints/"+a.str("id"), a.header.Get("Location"))
		require.Regexp(t, `^whsec_`, a.str("secret"))
		require.Equal(t, "enabled", a.json["status"])
		require.Nil(t, a.json["disabled_reason"])
		require.Equal(t, false, a.json["livemode"])
		require.EqualValues(t, 0, a.json["version"])
		require.InDelta(t, time.Now().Unix(), a.json["created"], 5)

		read := m.call(t, http.MethodGet, a.header.Get("Location"), nil)
		require.Equal(t, http.StatusOK, read.status)
		secret := a.json["secret"]
		delete(a.json, "secret")
		require.Equal(t, a.json, read.json, "the same object, without the secret")
		list := m.call(t, http.MethodGet, endpointsPath, nil)
		require.Equal(t, []map[string]any{read.json}, list.data())
		require.NotContains(t, string(list.body), secret)

		path := a.header.Get("Location")
		require.Equal(t, http.StatusNoContent, m.call(t, http.MethodDelete, path, nil).status)
		for method, sub := range map[string]string{
			"GET": "", "PATCH": "", "DELETE": "", "POST /rotate-secret": "", "POST /ping": "", "POST /recover": "",
		} {
			verb, rest, _ := strings.Cut(method, " ")
			var in any
			if verb == "PATCH" {
				in = body{"status": "enabled"}
			}
			if rest == "/recover" {
				in = body{"since": 1}
			}
			refused(t, m.call(t, verb, path+sub+rest, in), http.StatusNotFound, "not_found")
		}
		require.Empty(t, m.call(t, http.MethodGet, endpointsPath, nil).data())
		endpointID, err := id.Parse(id.Endpoint, a.str("id"))
		require.NoError(t, err)
		require.True(t, query[bool](t, b, `SELECT deleted_at IS NOT NULL FROM apipay.webhook_endpoints WHERE id = $1`, endpointID), "the row stays")
		require.Equal(t, []string{"webhook_endpoint.create", "webhook_endpoint.delete"},
			query[[]string](t, b, `SELECT array_agg(action ORDER BY id) FROM apipay.audit_log WHERE target = $1`, a.str("id")))
		require.Equal(t, "merchant", query[string](t, b, `SELECT role FROM apipay.audit_log WHERE target = $1 LIMIT 1`, a.str("id")))
		require.False(t, query[bool](t, b, `SELECT EXISTS (SELECT FROM apipay.audit_log WHERE changes::text LIKE '%whsec_%')`))
		require.Equal(t, 2, query[int](t, b, `SELECT count(*)::int FROM apipay.outbox_events
			WHERE topic = 'apipay.audit.v1' AND convert_from(payload, 'UTF8') LIKE '%' || $1 || '%'`, a.str("id")))
	})

	t.Run("RefusesBadInputAndChangesNothing", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		good := `"url":"https://merchant.example/","enabled_events":["ping"]`
		for name, c := range map[string]struct {
			body    string
			status  int
			code    string
			pointer string
		}{
			"empty":              {"", 400, "invalid_request", ""},
			"not an object":      {"[]", 400, "invalid_request", ""},
			"no url":             {`{"enabled_events":["ping"]}`, 400, "parameter_missing", "/url"},
			"no events":          {`{"url":"https://merchant.example/"}`, 400, "parameter_missing", "/enabled_events"},
			"null url":           {`{"url":null,"enabled_events":["ping"]}`, 400, "invalid_request", "/url"},
			"null events":        {`{"url":"https://merchant.example/","enabled_events":null}`, 400, "invalid_request", "/enabled_events"},
			"null event":         {`{"url":"https://merchant.example/","enabled_events":[null]}`, 400, "invalid_request", "/enabled_events/0"},
			"events as text":     {`{"url":"https://merchant.example/","enabled_events":"*"}`, 400, "invalid_request", "/enabled_events"},
			"unknown member":     {`{` + good + `,"secret":"whsec_x"}`, 400, "parameter_unknown", "/secret"},
			"tenant_id":          {`{` + good + `,"tenant_id":"x"}`, 400, "parameter_unknown", "/tenant_id"},
			"other case":         {`{` + good + `,"URL":"https://x.example"}`, 400, "parameter_unknown", "/URL"},
			"duplicate":          {`{` + good + `,"url":"https://x.example"}`, 400, "invalid_request", "/url"},
			"trailing":           {`{` + good + `}{}`, 400, "invalid_request", ""},
			"NUL in url":         {`{"url":"https://merchant.example/\u0000","enabled_events":["ping"]}`, 400, "invalid_request", "/url"},
			"NUL in description": {`{` + good + `,"description":"a\u0000b"}`, 400, "invalid_request", "/description"},
			"lone surrogate":     {`{` + good + `,"description":"\ud83d"}`, 400, "invalid_request", "/description"},
			"empty url":          {`{"url":"","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"http":               {`{"url":"http://merchant.example/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"loopback":           {`{"url":"https://127.0.0.1/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"mapped loopback":    {`{"url":"https://[::ffff:127.0.0.1]/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"decimal loopback":   {`{"url":"https://2130706433/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"metadata":           {`{"url":"https://169.254.169.254/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"credentials":        {`{"url":"https://a:b@merchant.example/","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"javascript":         {`{"url":"javascript:alert(1)","enabled_events":["ping"]}`, 422, "parameter_invalid", "/url"},
			"no event":           {`{"url":"https://merchant.example/","enabled_events":[]}`, 422, "parameter_invalid", "/enabled_events"},
			"unknown event":      {`{"url":"https://merchant.example/","enabled_events":["ping","x.y"]}`, 422, "parameter_invalid", "/enabled_events/1"},
			"other topic":        {`{"url":"https://merchant.example/","enabled_events":["payment_attempt.started"]}`, 422, "parameter_invalid", "/enabled_events/0"},
			"event twice":        {`{"url":"https://merchant.example/","enabled_events":["ping","ping"]}`, 422, "parameter_invalid", "/enabled_events/1"},
			"star and more":      {`{"url":"https://merchant.example/","enabled_events":["*","ping"]}`, 422, "parameter_invalid", "/enabled_events/0"},
			"long description":   {`{` + good + `,"description":"` + strings.Repeat("é", 501) + `"}`, 422, "parameter_invalid", "/description"},
			"too large":          {`{` + good + `,"description":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "payload_too_large", "-"},
		} {
			a := m.call(t, http.MethodPost, endpointsPath, c.body)
			require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
			require.Equal(t, c.code, a.code(), "%s: %s", name, a.body)
			if c.pointer != "-" {
				require.Equal(t, []string{c.pointer}, a.pointers(), "%s: %s", name, a.body)
			}
		}
		refused(t, m.call(t, http.MethodPost, endpointsPath, body{"url": "http://x", "enabled_events": []string{"no"}}),
			http.StatusUnprocessableEntity, "parameter_invalid", "/url", "/enabled_events/0")
		refused(t, m.call(t, http.MethodPost, endpointsPath+"?force=true", body{}), http.StatusBadRequest, "invalid_request")
		request := m.call(t, http.MethodPost, endpointsPath, `{`+good+`}`, "Content-Type", "text/plain")
		refused(t, request, http.StatusUnsupportedMediaType, "unsupported_media_type")
		require.Empty(t, m.call(t, http.MethodGet, endpointsPath, nil).data())
		// 500 code points are fine, whatever their bytes.
		require.Equal(t, http.StatusCreated, m.call(t, http.MethodPost, endpointsPath,
			`{`+good+`,"description":"`+strings.Repeat("😀", 500)+`"}`).status)
	})

	t.Run("PatchTellsAbsentFromNull", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		a := m.call(t, http.MethodPost, endpointsPath, body{"url": "https://merchant.example/1", "enabled_events": []string{"ping"}, "description": "first"})
		path := a.header.Get("Location")
		patch := func(in string) answer { return m.call(t, http.MethodPatch, path, in) }
		require.Equal(t, "first", patch(`{}`).json["description"])
		changed := patch(`{"url":"https://merchant.example/2"}`)
		require.Equal(t, http.StatusOK, changed.status)
		require.Equal(t, "https://merchant.example/2", changed.json["url"])
		require.Equal(t, "first", changed.json["description"])
		require.Nil(t, changed.json["secret"])
		require.Nil(t, patch(`{"description":null}`).json["description"])
		require.Equal(t, []any{"*"}, patch(`{"enabled_events":["*"]}`).json["enabled_events"])
		refused(t, patch(`{"url":null}`), http.StatusBadRequest, "invalid_request", "/url")
		refused(t, patch(`{"enabled_events":null}`), http.StatusBadRequest, "invalid_request", "/enabled_events")
		refused(t, patch(`{"status":null}`), http.StatusBadRequest, "invalid_request", "/status")
		refused(t, patch(`{"status":"deleted"}`), http.StatusUnprocessableEntity, "parameter_invalid", "/status")
		refused(t, patch(`{"url":"https://10.0.0.1/"}`), http.StatusUnprocessableEntity, "parameter_invalid", "/url")
		refused(t, patch(`{"version":7}`), http.StatusBadRequest, "parameter_unknown", "/version")
		require.EqualValues(t, 0, m.call(t, http.MethodGet, path, nil).json["version"], "no event, no version")
		require.Equal(t, 3, query[int](t, b, `SELECT count(*)::int FROM apipay.audit_log WHERE target = $1 AND action = 'webhook_endpoint.update'`, a.str("id")))
	})

	t.Run("DisableAndEnableAgain", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		a := m.endpoint(t)
		path := a.header.Get("Location")
		endpointID, _ := id.Parse(id.Endpoint, a.str("id"))
		enabledAt := func() time.Time {
			return query[time.Time](t, b, `SELECT enabled_at FROM apipay.webhook_endpoints WHERE id = $1`, endpointID)
		}
		first := enabledAt()
		require.Equal(t, "enabled", m.call(t, http.MethodPatch, path, body{"status": "enabled"}).json["status"])
		require.Equal(t, first, enabledAt(), "it was on already")
		off := m.call(t, http.MethodPatch, path, body{"status": "disabled"})
		require.Equal(t, "disabled", off.json["status"])
		require.Equal(t, "requested", off.json["disabled_reason"])
		require.Equal(t, first, enabledAt())
		refused(t, m.call(t, http.MethodPost, path+"/ping", nil), http.StatusConflict, "endpoint_disabled")
		refused(t, m.call(t, http.MethodPost, path+"/recover", body{"since": 0}), http.StatusConflict, "endpoint_disabled")
		on := m.call(t, http.MethodPatch, path, body{"status": "enabled"})
		require.Nil(t, on.json["disabled_reason"])
		require.True(t, enabledAt().After(first))
		// A reason that the dispatcher gave survives a second switching off.
		b.exec(t, `UPDATE apipay.webhook_endpoints SET status = 'disabled', disabled_reason = 'gone' WHERE id = $1`, endpointID)
		require.Equal(t, "gone", m.call(t, http.MethodPatch, path, body{"status": "disabled", "description": "x"}).json["disabled_reason"])
	})

	t.Run("AtMostAHundred", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		m := merchant{b.url, b.key(t, tenant, false)}
		b.exec(t, `INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events)
			SELECT gen_random_uuid(), $1, false, 'https://merchant.example/', '{*}' FROM generate_series(1, 98)`, tenant)
		var wg sync.WaitGroup
		statuses := make([]int, 8)
		for i := range statuses {
			wg.Go(func() {
				a, err := m.try(t, http.MethodPost, endpointsPath, body{"url": "https://merchant.example/", "enabled_events": []string{"*"}})
				if err == nil {
					statuses[i] = a.status
				}
			})
		}
		wg.Wait()
		require.ElementsMatch(t, []int{201, 201, 422, 422, 422, 422, 422, 422}, statuses)
		live := merchant{b.url, b.key(t, tenant, true)}
		require.Equal(t, true, live.endpoint(t).json["livemode"], "the other mode has its own hundred")
	})

	t.Run("AllowListPermitsInternalReceivers", func(t *testing.T) {
		t.Parallel()
		m := b.merchant(t)
		m.url = b.replica(t, "APIPAY_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8,::1/128")
		for _, url := range []string{"http://127.0.0.1:9999/hook", "http://[::1]:9999/hook", "https://merchant.example/"} {
			a := m.call(t, http.MethodPost, endpointsPath, body{"url": url, "enabled_events": []string{"*"}})
			require.Equal(t, http.StatusCreated, a.status, url)
		}
		refused(t, m.call(t, http.MethodPost, endpointsPath, body{"url": "http://10.0.0.1/", "enabled_events": []string{"*"}}),
			http.StatusUnprocessableEntity, "parameter_invalid", "/url")
	})

	t.Run("ListsInPages", func(t *testing.T) {
		t.Parallel()
		tenant := b.tenant(t)
		m := merchant{b.url, b.key(t, tenant, false)}
		b.exec(t, `INSERT INTO apipay.webhook_endpoints (id, tenant_id, livemode, url, enabled_events, created_at)
			SELECT gen_random_uuid(), $1, false, 'https://merchant.example/', '{*}', '2026-01-01' FROM generate_series(1, 25)`, tenant)
		pages(t, m, endpointsPath, 25)
	})
}

// pages reads a list of rows with equal times: every row once, none lost, also when one is inserted meanwhile.
func pages(t *testing.T, m merchant, path string, rows int) {
	t.Helper()
	seen, cursor := map[string]bool{}, ""
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	for page := 1; ; page++ {
		a := m.call(t, http.MethodGet, path+cursor, nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		for _, one := range a.data() {
			require.False(t, seen[one["id"].(string)], "twice")
			seen[one["id"].(string)] = true
		}
		if a.json["has_more"] == false {
			require.Nil(t, a.json["next_cursor"])
			require.Equal(t, (rows+9)/10, page)
			break
		}
		require.Len(t, a.data(), 10)
		cursor = separator + "cursor=" + a.str("next_cursor")
	}
	require.Len(t, seen, rows)
	for _, limit := range []string{"0", "101", "x", "-1", "1e1", "010", "", "10&limit=10"} {
		refused(t, m.call(t, http.MethodGet, path+separator+"limit="+limit, nil), http.StatusBadRequest, "invalid_request")
	}
	full := m.call(t, http.MethodGet, path+separator+"limit=100", nil)
	require.Len(t, full.data(), rows)
	one := m.call(t, http.MethodGet, path+separator+"limit=1", nil)
	next := one.str("next_cursor")
	for name, cursor := range map[string]string{
		"tampered": next[:len(next)-1] + "_", "cut": next[:10], "unknown": "abc", "empty": "", "10 kB": strings.Repeat("A", 10_000),
	} {
		a := m.call(t, http.MethodGet, path+separator+"cursor="+cursor, nil)
		require.Equal(t, "cursor_invalid", a.code(), name)
	}
	refused(t, m.call(t, http.MethodGet, path+separator+"page=2", nil), http.StatusBadRequest, "invalid_request")
}

func TestEndpoints_RotateSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyset, err := webhook.ParseKeyset(testKeyset)
	require.NoError(t, err)
	tenant := b.tenant(t)
	m := merchant{b.url, b.key(t, tenant, false)}
	created := m.endpoint(t)
	path := created.header.Get("Location") + "/rotate-secret"
	endpointID, _ := id.Parse(id.Endpoint, created.str("id"))
	// What the dispatcher would sign with now, active first.
	signing := func() (secrets []string) {
		rows, err := b.owner.Query(t.Context(), `SELECT id, ciphertext FROM apipay.webhook_endpoint_secrets
			WHERE endpoint_id = $1 AND (expires_at IS NULL OR expires_at > now()) ORDER BY expires_at DESC NULLS FIRST`, endpointID)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var secretID uuid.UUID
			var ciphertext []byte
			require.NoError(t, rows.Scan(&secretID, &ciphertext))
			require.NotContains(t, string(ciphertext), "whsec_")
			secret, err := keyset.Open(ciphertext, webhook.SecretRef{TenantID: tenant, EndpointID: endpointID, ID: secretID})
			require.NoError(t, err)
			secrets = append(secrets, secret.Reveal())
		}
		return secrets
	}
	first := created.str("secret")
	require.Equal(t, []string{first}, signing())

	rotated := m.call(t, http.MethodPost, path, nil)
	require.Equal(t, http.StatusOK, rotated.status, string(rotated.body))
	second := rotated.str("secret")
	require.NotEqual(t, first, second)
	require.Equal(t, []string{second, first}, signing())
	require.InDelta(t, 86400, query[float64](t, b, `SELECT extract(epoch FROM max(expires_at) - now())::float8
		FROM apipay.webhook_endpoint_secrets WHERE endpoint_id = $1`, endpointID), 5, "24 hours by default")

	third := m.call(t, http.MethodPost, path, body{"overlap_seconds": 3600}).str("secret")
	require.Equal(t, []string{third, second}, signing(), "a second rotation restarts the window: at most two sign")
	require.InDelta(t, 3600, query[float64](t, b, `SELECT extract(epoch FROM max(expires_at) - now())::float8
		FROM apipay.webhook_endpoint_secrets WHERE endpoint_id = $1`, endpointID), 5)

	fourth := m.call(t, http.MethodPost, path, body{"overlap_seconds": 0}).str("secret")
	require.Equal(t, []string{fourth}, signing(), "revoked now")

	for name, in := range map[string]string{"-1": "parameter_invalid", "604801": "parameter_invalid", "1.5": "invalid_request",
		`"60"`: "invalid_request", "null": "invalid_request", "99999999999999999999": "parameter_invalid"} {
		a := m.call(t, http.MethodPost, path, `{"overlap_seconds":`+name+`}`)
		require.Equal(t, in, a.code(), name)
		require.Equal(t, []string{"/overlap_seconds"}, a.pointers())
	}
	require.Equal(t, []string{fourth}, signing())
	require.NotContains(t, string(m.call(t, http.MethodGet, created.header.Get("Location"), nil).body), "whsec_")
	require.NotContains(t, b.logs.String(), "whsec_")

	// Rotations at once: every one succeeds, and again two sign.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if a, err := m.try(t, http.MethodPost, path, body{"overlap_seconds": 60}); err != nil || a.status != http.StatusOK {
				t.Errorf("rotating: %v %s", err, a.body)
			}
		})
	}
	wg.Wait()
	require.Len(t, signing(), 2)
}

func TestEndpoints_IdempotencyKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenant := b.tenant(t)
	m := merchant{b.url, b.key(t, tenant, false)}
	in := body{"url": "https://merchant.example/", "enabled_events": []string{"*"}}
	first := m.call(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", `"k-1"`)
	require.Equal(t, http.StatusCreated, first.status)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	again := m.call(t, http.MethodPost, endpointsPath, `{"enabled_events" : ["*"], "url":"https://merchant.example/"}`, "Idempotency-Key", "k-1")
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body, "the secret included")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
	require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
	require.False(t, query[bool](t, b, `SELECT EXISTS (SELECT FROM apipay.idempotency_keys WHERE position('whsec_'::bytea IN response_body) > 0)`),
		"no secret is kept in clear text")

	reused := m.call(t, http.MethodPost, endpointsPath, body{"url": "https://merchant.example/other", "enabled_events": []string{"*"}}, "Idempotency-Key", "k-1")
	refused(t, reused, http.StatusUnprocessableEntity, "idempotency_key_reused")
	reused = m.call(t, http.MethodPost, first.header.Get("Location")+"/ping", nil, "Idempotency-Key", "k-1")
	refused(t, reused, http.StatusUnprocessableEntity, "idempotency_key_reused")
	require.Len(t, m.call(t, http.MethodGet, endpointsPath, nil).data(), 1)

	// B15
	for name, headers := range map[string][]string{
		"twice": {"Idempotency-Key", "a", "Idempotency-Key", "b"}, "empty": {"Idempotency-Key", ""},
		"256": {"Idempotency-Key", strings.Repeat("a", 256)}, "space": {"Idempotency-Key", "a b"},
		"not ASCII": {"Idempotency-Key", "é"}, "half quoted": {"Idempotency-Key", `"a`},
	} {
		a := m.call(t, http.MethodPost, endpointsPath, in, headers...)
		require.Equal(t, "idempotency_key_invalid", a.code(), name)
	}
	require.Len(t, m.call(t, http.MethodGet, endpointsPath, nil).data(), 1)
	require.Equal(t, http.StatusCreated, m.call(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", strings.Repeat("a", 255)).status)

	// A refusal frees the key; another tenant's same key is another key.
	bad := m.call(t, http.MethodPost, endpointsPath, body{"url": "x", "enabled_events": []string{"*"}}, "Idempotency-Key", "k-2")
	require.Equal(t, http.StatusUnprocessableEntity, bad.status)
	require.Equal(t, http.StatusCreated, m.call(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", "k-2").status)
	other := b.merchant(t)
	theirs := other.call(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", "k-1")
	require.Equal(t, http.StatusCreated, theirs.status)
	require.NotEqual(t, first.str("id"), theirs.str("id"))

	// Many at once: one happens, all answer it.
	var wg sync.WaitGroup
	answers := make([]answer, 20)
	for i := range answers {
		wg.Go(func() { answers[i], _ = m.try(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", "k-3") })
	}
	wg.Wait()
	for _, a := range answers {
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		require.Equal(t, string(answers[0].body), string(a.body))
	}
	require.Len(t, m.call(t, http.MethodGet, endpointsPath+"?limit=100", nil).data(), 4)

	// Past its life the key is a new one.
	b.exec(t, `UPDATE apipay.idempotency_keys SET expires_at = now() - interval '1 second' WHERE key = 'k-3' AND tenant_id = $1`, tenant)
	fresh := m.call(t, http.MethodPost, endpointsPath, in, "Idempotency-Key", "k-3")
	require.Equal(t, http.StatusCreated, fresh.status)
	require.NotEqual(t, answers[0].str("id"), fresh.str("id"))
}

func TestEndpoints_Ping(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := b.merchant(t)
	created := m.endpoint(t)
	path := created.header.Get("Location")
	for version := 1; version <= 2; version++ {
		a := m.call(t, http.MethodPost, path+"/ping", nil, "Idempotency-Key", fmt.Sprint("ping-", version), "X-Request-Id", "mine_1")
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, "ping", a.json["type"])
		require.Equal(t, body{"id": "mine_1", "idempotency_key": fmt.Sprint("ping-", version)}, a.json["request"])
		object := a.json["data"].(body)["object"].(body)
		require.Equal(t, created.str("id"), object["id"])
		require.EqualValues(t, version, object["version"])
		require.NotContains(t, object, "secret")
		require.Equal(t, object, m.call(t, http.MethodGet, path, nil).json, "data.object is the object as the API shows it")

		read := m.call(t, http.MethodGet, "/v1/events/"+a.str("id"), nil)
		require.Equal(t, http.StatusOK, read.status)
		eventID, err := id.Parse(id.Event, a.str("id"))
		require.NoError(t, err)
		payload := query[[]byte](t, b, `SELECT payload FROM apipay.outbox_events WHERE id = $1`, eventID)
		require.Equal(t, payload, read.body, "the bytes that are sent")
		require.Equal(t, payload, a.body)
		_, err = events.ParseStrict(payload)
		require.NoError(t, err)
	}
	// What was written about it on every topic is as the contract says.
	rows, err := b.owner.Query(t.Context(), `SELECT payload FROM apipay.outbox_events`)
	require.NoError(t, err)
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	require.Len(t, payloads, 5)
	for _, payload := range payloads {
		_, err := events.ParseStrict(payload)
		require.NoError(t, err, string(payload))
	}
}
