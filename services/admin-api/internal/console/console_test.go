package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/testdb"
	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/services/admin-api/internal/api"
	"apipay.io/hub/services/admin-api/internal/staff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBundle is a console on a real port and a browser with its own cookies, which follows no redirect by itself.
type testBundle struct {
	t       *testing.T
	server  *httptest.Server
	browser *http.Client
	tokens  string
	members *staff.Directory
	now     time.Time
}

var staffTokens = map[string]string{"viewer": "viewer-token", "support": "support-token", "admin": "admin-token"}

func setup(t *testing.T, issuer string, signIn staff.SignIn) *testBundle {
	t.Helper()
	db := testdb.New(t)
	b := &testBundle{t: t, tokens: filepath.Join(t.TempDir(), "tokens.json"), now: time.Now()}
	b.writeTokens("viewer", "support", "admin")
	logger := slog.New(slog.DiscardHandler)
	var err error
	b.members, err = staff.New(staff.Options{
		TokensFile: b.tokens, Issuer: issuer, Audience: "apipay-admin", RoleClaim: "role", SignIn: signIn,
		Logger: logger, Loop: ops.NewHealth().Loop("tokens", time.Minute),
	})
	require.NoError(t, err)
	cursors, err := httpapi.NewCursors([]byte("a key of thirty-two bytes for it"))
	require.NoError(t, err)
	programs := api.New(api.Options{Pool: db.Pool(t, db.Admin), Staff: b.members, Cursors: cursors, Logger: logger})
	handler, err := New(Options{API: programs, Staff: b.members, Key: []byte("another key of 32 bytes for this"), Logger: logger})
	require.NoError(t, err)
	b.server = httptest.NewServer(handler)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	b.browser = &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(b.server.Close)
	return b
}

func (b *testBundle) writeTokens(roles ...string) {
	b.t.Helper()
	var entries []map[string]any
	for _, role := range roles {
		hash := sha256.Sum256([]byte(staffTokens[role]))
		entries = append(entries, map[string]any{"name": role, "role": role, "sha256": hex.EncodeToString(hash[:])})
	}
	content, err := json.Marshal(entries)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(b.tokens, content, 0o600))
}

type page struct {
	status int
	header http.Header
	body   string
}

func (b *testBundle) do(method, path string, form url.Values, change func(*http.Request)) page {
	b.t.Helper()
	var body io.Reader = http.NoBody
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, body)
	require.NoError(b.t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	request.Header.Set("Accept", "text/html")
	if change != nil {
		change(request)
	}
	response, err := b.browser.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return page{response.StatusCode, response.Header, string(raw)}
}

func (b *testBundle) get(path string) page { b.t.Helper(); return b.do(http.MethodGet, path, nil, nil) }

func (b *testBundle) signIn(role string) page {
	b.t.Helper()
	got := b.do(http.MethodPost, "/sign-in", url.Values{"token": {staffTokens[role]}, "next": {"/audit?actor=x"}}, nil)
	require.Equal(b.t, http.StatusSeeOther, got.status)
	return got
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

func (b *testBundle) csrf() string {
	b.t.Helper()
	found := csrfField.FindStringSubmatch(b.get("/deliveries").body)
	require.NotNil(b.t, found)
	return found[1]
}

func TestSignIn_Token(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	require.Contains(t, b.get("/").body, "Staff token")
	require.Equal(t, "/sign-in?next=%2Fdeliveries%3Fstatus%3DFAILED", b.get("/deliveries?status=FAILED").header.Get("Location"))
	wrong := b.do(http.MethodPost, "/sign-in", url.Values{"token": {"nobody's"}}, nil)
	require.Equal(t, http.StatusUnauthorized, wrong.status)
	require.Empty(t, wrong.header.Values("Set-Cookie"))
	require.NotContains(t, wrong.body, "nobody&#39;s")

	in := b.signIn("viewer")
	require.Equal(t, "/audit?actor=x", in.header.Get("Location"))
	cookie := in.header.Get("Set-Cookie")
	for _, attribute := range []string{"HttpOnly", "SameSite=Lax", "Path=/"} {
		require.Contains(t, cookie, attribute)
	}
	require.NotContains(t, cookie, "Secure", "the machine itself, without TLS")
	require.NotContains(t, cookie, staffTokens["viewer"])
	home := b.get("/deliveries")
	require.Equal(t, http.StatusOK, home.status)
	require.Equal(t, "no-store", home.header.Get("Cache-Control"))
	for _, directive := range strings.Split(home.header.Get("Content-Security-Policy"), ";") {
		require.NotContains(t, directive, "unsafe")
	}
	require.NotRegexp(t, `<script(?: [^>]*)?>[^<]`, home.body, "no script but files")
	require.NotRegexp(t, `\sstyle=|\son[a-z]+=`, home.body)
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, "/sign-out", url.Values{}, nil).status)
	require.Equal(t, "/sign-in", b.do(http.MethodPost, "/sign-out", url.Values{"csrf": {b.csrf()}}, nil).header.Get("Location"))
	require.Equal(t, http.StatusSeeOther, b.get("/deliveries").status)
}

// Elsewhere than on the machine itself a cookie is for TLS alone, and for this host and no other.
func TestSignIn_SecureCookies(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	got := b.do(http.MethodPost, "/sign-in", url.Values{"token": {"admin-token"}}, func(r *http.Request) { r.Host = "support.example.com" })
	require.Regexp(t, `^__Host-apipay_session=.*; Path=/;.*HttpOnly; Secure; SameSite=Lax$`, got.header.Get("Set-Cookie"))
	require.NotEmpty(t, got.header.Get("Strict-Transport-Security"))
}

func TestSession_Ends(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	b.signIn("support")
	require.Equal(t, http.StatusOK, b.get("/deliveries").status)
	// The token is taken out of the file.
	b.writeTokens("viewer")
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- b.members.Run(ctx) }()
	require.Eventually(t, func() bool { return b.get("/deliveries").status == http.StatusSeeOther }, 10*time.Second, 50*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-watched, context.Canceled)
}

func TestSession_Forged(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	b.signIn("admin")
	base, err := url.Parse(b.server.URL)
	require.NoError(t, err)
	good := b.browser.Jar.Cookies(base)[0]
	with := func(value string) int {
		b.browser.Jar.SetCookies(base, []*http.Cookie{{Name: good.Name, Value: value, Path: "/"}})
		return b.get("/deliveries").status
	}
	require.Equal(t, http.StatusOK, with(good.Value))
	flip := byte('A')
	if good.Value[40] == flip {
		flip = 'B'
	}
	for _, value := range []string{"", "x", good.Value + "AAAA", good.Value[:40] + string(flip) + good.Value[41:], good.Value[:len(good.Value)-8]} {
		require.Equal(t, http.StatusSeeOther, with(value))
	}
	// One cookie is not taken for another, and none outlives its time.
	sealed, err := newSeal([]byte("another key of 32 bytes for this"))
	require.NoError(t, err)
	hash := sha256.Sum256([]byte("admin-token"))
	for purpose, until := range map[string]time.Duration{flashCookie: time.Hour, sessionCookie: -time.Second} {
		text, err := sealed.close(purpose, session{Token: hash[:], CSRF: "x", ExpiresAt: time.Now().Add(until)})
		require.NoError(t, err)
		require.Equal(t, http.StatusSeeOther, with(text), purpose)
	}
}

func TestWrites_AreProtected(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	b.signIn("support")
	csrf := b.csrf()
	ask := func(form url.Values, change func(*http.Request)) int {
		return b.do(http.MethodPost, "/recoveries", form, change).status
	}
	require.Equal(t, http.StatusForbidden, ask(url.Values{}, nil))
	require.Equal(t, http.StatusForbidden, ask(url.Values{"csrf": {"another"}}, nil))
	require.Equal(t, http.StatusForbidden, b.do(http.MethodPost, "/recoveries?csrf="+csrf, url.Values{}, nil).status, "not from the address")
	require.Equal(t, http.StatusForbidden, ask(url.Values{"csrf": {csrf}}, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }))
	require.Equal(t, http.StatusForbidden, ask(url.Values{"csrf": {csrf}}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }))
	require.Equal(t, http.StatusSeeOther, ask(url.Values{"csrf": {csrf}}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }))
	list := b.get("/recoveries")
	require.Equal(t, 1, strings.Count(list.body, `<a class="row" href="/recoveries/rec_`), "one was allowed")
	require.Contains(t, list.body, "unknown", "how many is not known before the dispatcher counted")
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := setup(t, "", staff.SignIn{})
	b.signIn("viewer")
	for path, status := range map[string]int{
		"/deliveries": 200, "/endpoints": 200, "/recoveries": 200, "/recoveries/new": 403, "/outbox": 200, "/quarantine": 200,
		"/payments": 200, "/payments?reference=order-1": 200, "/audit": 200, "/docs": 200, "/nowhere": 404,
		"/deliveries?event=nonsense": 400, "/deliveries?from=nonsense": 400, "/deliveries?cursor=x": 400, "/deliveries?status=x": 400,
		"/deliveries/whd_x": 404, "/events/evt_x": 404, "/endpoints/we_x": 404, "/recoveries/rec_x": 404, "/payments/pi_x": 404,
		"/find?q=evt_x": 303, "/find?q=re_x": 404, "/find?q=%22%3E%3Cscript%3E": 303, "/audit?actor=%25": 200,
		"/deliveries/..%2f..%2faudit-log": 404, "/assets/..%2ftemplates%2flayout.html": 404,
	} {
		got := b.get(path)
		require.Equal(t, status, got.status, path)
		require.NotContains(t, got.body, "SQLSTATE", path)
		require.NotContains(t, got.body, "<no value>", path)
	}
	require.Contains(t, b.get("/deliveries?event=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").body, "&#34;&gt;&lt;script&gt;")
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/audit?actor=x": "/audit?actor=x", "": "/deliveries", "//evil.example": "/deliveries", "https://evil.example/": "/deliveries",
		"/\\evil.example": "/deliveries", "/sign-out": "/deliveries", "javascript:alert(1)": "/deliveries", "/a\r\nX: y": "/deliveries",
		"/./../x": "/./../x",
	} {
		require.Equal(t, want, localPath(next), "%q", next)
	}
}

// Single sign-on against a real OpenID Connect server: code, PKCE, nonce and state.
func TestSignIn_Issuer(t *testing.T) {
	t.Parallel()
	server, err := mockoidc.Run()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown()) })
	b := setup(t, server.Issuer(), staff.SignIn{})
	// The client id is the server's, and the way back leads to the test's port.
	b.members, err = staff.New(staff.Options{
		Issuer: server.Issuer(), Audience: "apipay-admin", RoleClaim: "role", Logger: slog.New(slog.DiscardHandler),
		SignIn: staff.SignIn{ClientID: server.ClientID, ClientSecret: server.ClientSecret, RedirectURL: b.server.URL + CallbackPath},
		Loop:   ops.NewHealth().Loop("tokens", time.Minute),
	})
	require.NoError(t, err)
	handler, err := New(Options{API: http.NotFoundHandler(), Staff: b.members, Key: []byte("another key of 32 bytes for this"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	b.server.Config.Handler = handler

	begin := func() (atIssuer *url.URL, back string) {
		away := b.get("/sign-in/issuer?next=/docs")
		require.Equal(t, http.StatusSeeOther, away.status)
		atIssuer, err := url.Parse(away.header.Get("Location"))
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, atIssuer.String(), http.NoBody)
		require.NoError(t, err)
		response, err := b.browser.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		returned, err := url.Parse(response.Header.Get("Location"))
		require.NoError(t, err)
		return atIssuer, returned.RequestURI()
	}

	server.QueueUser(&roleUser{MockUser: mockoidc.MockUser{Subject: "00u7"}, role: "support"})
	atIssuer, back := begin()
	require.Equal(t, "S256", atIssuer.Query().Get("code_challenge_method"))
	require.NotEmpty(t, atIssuer.Query().Get("nonce"))
	in := b.get(back)
	require.Equal(t, http.StatusSeeOther, in.status, in.body)
	require.Equal(t, "/docs", in.header.Get("Location"))
	home := b.get("/docs")
	require.Contains(t, home.body, "oidc:00u7")
	require.Contains(t, home.body, "support")
	require.Equal(t, http.StatusBadRequest, b.get(back).status, "the state is good for once")

	server.QueueUser(&roleUser{MockUser: mockoidc.MockUser{Subject: "00u8"}})
	_, back = begin()
	require.Equal(t, http.StatusForbidden, b.get(back).status, "somebody without a role")
	_, back = begin()
	require.Equal(t, http.StatusBadRequest, b.get(strings.Replace(back, "state=", "state=x", 1)).status)
	_, back = begin()
	require.Equal(t, http.StatusUnauthorized, b.get(regexp.MustCompile(`code=[^&]*`).ReplaceAllString(back, "code=forged")).status)
	require.Equal(t, http.StatusBadRequest, b.get("/sign-in/callback?code=x&state=").status)
}

// roleUser adds the claim role to what mockoidc tells of a user.
type roleUser struct {
	mockoidc.MockUser
	role string
}

func (u *roleUser) Claims(_ []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	return struct {
		*mockoidc.IDTokenClaims
		Role string `json:"role,omitempty"`
	}{base, u.role}, nil
}

func TestSumUp(t *testing.T) {
	t.Parallel()
	classes, total := sumUp(healthSeries{Hours: []healthHour{
		{Failures: map[string]int64{"timeout": 0}}, {Failures: map[string]int64{"timeout": 0, "dns": 1}}, {Failures: map[string]int64{"timeout": 3}},
	}})
	require.Equal(t, []string{"timeout", "dns"}, classes, "each class once, the most frequent first")
	require.Equal(t, map[string]int64{"timeout": 3, "dns": 1}, total.Failures)
}

func TestMoney(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		minor int64
		code  string
	}{
		"JPY 80": {80, "JPY"}, "KWD 1.234": {1234, "KWD"}, "EUR 1,299.00": {129900, "EUR"}, "USD 999,999.99": {99999999, "USD"}, "EUR 0.05": {5, "EUR"},
	} {
		require.Equal(t, want, money(c.minor, c.code))
	}
}
