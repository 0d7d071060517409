package staff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/id"
	"apipay.io/hub/pkg/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sum(token string) string {
	hash := sha256.Sum256([]byte(token))
	return hex.EncodeToString(hash[:])
}

func tokensPath(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.json")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func open(t *testing.T, content string) (*Directory, error) {
	t.Helper()
	return New(Options{
		TokensFile: tokensPath(t, content), Logger: slog.New(slog.DiscardHandler), Loop: ops.NewHealth().Loop("tokens", time.Minute),
	})
}

func entry(name, token, role, more string) string {
	return `{"name":"` + name + `","sha256":"` + sum(token) + `","role":"` + role + `"` + more + `}`
}

func TestTokens(t *testing.T) {
	t.Parallel()
	a, b := id.New(), id.New()
	d, err := open(t, `[`+entry("vera", "v", "viewer", "")+`,`+
		entry("ada", "a", "admin", `,"tenants":["`+id.Format(id.Tenant, a)+`","`+strings.ToUpper(b.String())+`"]`)+`]`)
	require.NoError(t, err)

	vera, err := d.Authenticate(t.Context(), "v")
	require.NoError(t, err)
	require.Equal(t, Identity{Name: "vera", Role: Viewer}, vera)
	require.Equal(t, "*", vera.Scope())
	require.False(t, vera.IsConfined())
	ada, err := d.Authenticate(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{a, b}, ada.Tenants)
	require.Equal(t, a.String()+","+b.String(), ada.Scope())
	require.True(t, ada.IsConfined())
	for _, token := range []string{"", "x", "V", sum("v"), strings.Repeat("v", 1<<20)} {
		_, err := d.Authenticate(t.Context(), token)
		require.ErrorIs(t, err, ErrUnknownToken)
	}

	require.True(t, Admin.May(Viewer))
	require.True(t, Support.May(Support))
	require.False(t, Viewer.May(Support))
	require.False(t, Role("").May(Viewer))
	require.False(t, Role("root").May(Role("root")))
	require.Empty(t, Identity{Tenants: []uuid.UUID{}}.Scope(), "no tenant is not every tenant")
}

func TestTokens_Refusals(t *testing.T) {
	t.Parallel()
	good := entry("x", "x", "viewer", "")
	for name, content := range map[string]string{
		"empty file":      ``,
		"no array":        good,
		"no token":        `[]`,
		"trailing":        `[` + good + `]x`,
		"no name":         `[{"sha256":"` + sum("x") + `","role":"viewer"}]`,
		"control name":    `[` + entry(`a\nb`, "x", "viewer", "") + `]`,
		"no hash":         `[{"name":"x","role":"viewer"}]`,
		"short hash":      `[{"name":"x","sha256":"abcd","role":"viewer"}]`,
		"long hash":       `[{"name":"x","sha256":"` + sum("x") + `00","role":"viewer"}]`,
		"hash of nothing": `[` + entry("x", "", "viewer", "") + `]`,
		"token in place":  `[{"name":"x","sha256":"my-very-secret-token","role":"viewer"}]`,
		"no role":         `[{"name":"x","sha256":"` + sum("x") + `"}]`,
		"other role":      `[` + entry("x", "x", "root", "") + `]`,
		"other case":      `[` + entry("x", "x", "Viewer", "") + `]`,
		"misspelt member": `[` + entry("x", "x", "viewer", `,"tenant":["a"]`) + `]`,
		"no tenant":       `[` + entry("x", "x", "viewer", `,"tenants":[]`) + `]`,
		"all":             `[` + entry("x", "x", "viewer", `,"tenants":["*"]`) + `]`,
		"two in one":      `[` + entry("x", "x", "viewer", `,"tenants":["`+id.New().String()+","+id.New().String()+`"]`) + `]`,
		"braces":          `[` + entry("x", "x", "viewer", `,"tenants":["{`+id.New().String()+`}"]`) + `]`,
		"name twice":      `[` + good + `,` + entry("x", "y", "viewer", "") + `]`,
		"hash twice":      `[` + good + `,` + entry("y", "x", "viewer", "") + `]`,
		"member twice":    `[{"name":"x","name":"y","sha256":"` + sum("x") + `","role":"viewer"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, content)
			require.ErrorContains(t, err, "APIPAY_ADMIN_TOKENS_FILE")
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "my-very-secret-token")
		})
	}
	_, err := New(Options{TokensFile: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "APIPAY_ADMIN_TOKENS_FILE")
}

func TestTokens_Reload(t *testing.T) {
	t.Parallel()
	path := tokensPath(t, `[`+entry("old", "old", "viewer", "")+`]`)
	log := &lockedBuffer{}
	d, err := New(Options{TokensFile: path, Logger: slog.New(slog.NewJSONHandler(log, nil)), Loop: ops.NewHealth().Loop("tokens", time.Minute)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	works := func(token string) bool {
		_, err := d.Authenticate(t.Context(), token)
		return err == nil
	}
	// A file that cannot be used locks nobody out.
	require.NoError(t, os.WriteFile(path, []byte(`[{"name":`), 0o600))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "staff_tokens.kept") }, 10*time.Second, 20*time.Millisecond)
	require.True(t, works("old"))
	require.NoError(t, os.WriteFile(path, []byte(`[`+entry("new", "new", "admin", "")+`]`), 0o600))
	require.Eventually(t, func() bool { return works("new") }, 10*time.Second, 20*time.Millisecond)
	require.False(t, works("old"), "a token that was taken out no longer works")
	cancel()
	require.ErrorIs(t, <-ran, context.Canceled)
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestHighestRole(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Role{
		`"support"`: Support, `["viewer","support","offline_access"]`: Support, `["other"]`: "", `"root"`: "", `null`: "", `1`: "",
		`{"admin":true}`: "", `["admin",1]`: "", ``: "", `"Admin"`: "", `[]`: "",
	} {
		require.Equal(t, want, highestRole([]byte(raw)), raw)
	}
}
