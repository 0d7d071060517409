package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/devstack/testdb"
)

var (
	sqlBlock  = regexp.MustCompile("(?ms)^ *```sql ([a-z_]+)\n(.*?)^ *```")
	anySQL    = regexp.MustCompile("(?m)^ *```sql")
	curlCall  = regexp.MustCompile(`(?m)^ *curl [^\n]*`)
	curlPath  = regexp.MustCompile(`"\$ADMIN(/[^"?]*)(\?[^"]*)?"`)
	curlVerb  = regexp.MustCompile(`-X ([A-Z]+)`)
	curlBody  = regexp.MustCompile(`-d '([^']*)'`)
	shellName = regexp.MustCompile(`\$[A-Z]+`)
	parameter = regexp.MustCompile(`\\\{[^}]+\\\}`)
)

func runbooks(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "docs/runbooks/*.md"))
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	pages := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		pages[filepath.Base(file)] = string(content)
	}
	return pages
}

// TestRunbooksSQL runs every SQL block of the runbooks as the role that it names. What the role may not see or do fails here.
func TestRunbooksSQL(t *testing.T) {
	t.Parallel()
	database := testdb.New(t)
	blocks := 0
	for name, page := range runbooks(t) {
		found := sqlBlock.FindAllStringSubmatch(page, -1)
		require.Len(t, found, len(anySQL.FindAllString(page, -1)), "%s: a block of SQL names no role", name)
		for _, block := range found {
			blocks++
			conn, err := pgx.Connect(t.Context(), dsnOf(t, database, block[1]))
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), block[2])
			require.NoError(t, err, "%s, as %s:\n%s", name, block[1], block[2])
			require.NoError(t, conn.Close(context.WithoutCancel(t.Context())))
		}
	}
	require.Greater(t, blocks, 15)
}

// TestRunbooksCalls holds every curl of the runbooks against the running admin-api: reads are made, and answer 200; writes
// are found in its OpenAPI document, with a body that it takes.
func TestRunbooksCalls(t *testing.T) {
	h := start(t)
	staff := h.staff(t)
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody *struct {
				Content map[string]struct {
					Schema struct {
						Properties map[string]any `json:"properties"`
						Ref        string         `json:"$ref"`
					} `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
	}
	response, err := staff.http.Get(h.URLs.AdminAPI + "/openapi.json")
	require.NoError(t, err)
	defer response.Body.Close()
	require.NoError(t, json.NewDecoder(response.Body).Decode(&document))
	calls := 0
	for name, page := range runbooks(t) {
		for _, call := range curlCall.FindAllString(page, -1) {
			if strings.Contains(call, "http://127.0.0.1:808") {
				require.Regexp(t, `/(readyz|livez|metrics)$`, call, name)
				continue
			}
			match := curlPath.FindStringSubmatch(call)
			require.NotNil(t, match, "%s: %s", name, call)
			calls++
			method := http.MethodGet
			if verb := curlVerb.FindStringSubmatch(call); verb != nil {
				method = verb[1]
			}
			if method == http.MethodGet {
				status, answer, err := staff.do(t.Context(), method, strings.ReplaceAll(match[1], "$TENANT", h.Demo.TenantID)+match[2], "", nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status, "%s: %s: %v", name, call, answer)
				continue
			}
			operation := findOperation(document.Paths, match[1])
			require.NotNil(t, operation, "%s: no such route: %s", name, call)
			described, ok := operation[strings.ToLower(method)]
			require.True(t, ok, "%s: no such method: %s", name, call)
			body := curlBody.FindStringSubmatch(call)
			if body == nil {
				continue
			}
			require.NotNil(t, described.RequestBody, "%s: it takes no body: %s", name, call)
			require.True(t, json.Valid([]byte(body[1])), "%s: %s", name, call)
			// The ids are of nothing: what is refused is that, and not the body.
			var members map[string]any
			require.NoError(t, json.Unmarshal([]byte(body[1]), &members))
			path := shellName.ReplaceAllStringFunc(match[1], func(of string) string {
				if of == "$TENANT" {
					return h.Demo.TenantID
				}
				return map[string]string{"$EVENT": "evt_", "$ATTEMPT": "pat_", "$ENDPOINT": "we_", "$KEY": "key_"}[of] + "01m8pk294ae3yt04a0bvj702d6"
			})
			status, answer, err := staff.do(t.Context(), method, path, "", members)
			require.NoError(t, err)
			require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status, "%s: %s: %v", name, call, answer)
			if status == http.StatusNotFound {
				require.Equal(t, "not_found", answer.text("code"))
			}
		}
	}
	require.Greater(t, calls, 12)
}

// findOperation finds the path of the document whose parameters stand where the command has variables.
func findOperation[T any](paths map[string]T, path string) T {
	for template, operation := range paths {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(template), `\$$[A-Z]+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			return operation
		}
	}
	var none T
	return none
}

func dsnOf(t *testing.T, database *testdb.DB, role string) string {
	t.Helper()
	dsn, ok := map[string]string{"apipay_owner": database.Owner, "apipay_worker": database.Worker, "apipay_app": database.App, "apipay_admin": database.Admin}[role]
	require.True(t, ok, "no such role: %s", role)
	return dsn
}
