// Package compose holds docker-compose.yml against the services and the local stack, and does what it says without an engine:
// the same initialization of Postgres, the same environments, the same checks of health.
package compose

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// makeSecrets runs what `make compose-secrets` runs, in a folder of the test's own.
func makeSecrets(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	out, err := exec.CommandContext(t.Context(), filepath.Join(repository, "deploy/compose-secrets.sh"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// A second run changes nothing: Postgres and the stored signing secrets know the first one's.
func TestSecretsStay(t *testing.T) {
	t.Parallel()
	dir := makeSecrets(t)
	before, err := exec.CommandContext(t.Context(), "sh", "-c", `cat "$0"/* | sha256sum`, dir).Output()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(repository, "deploy/compose-secrets.sh"), dir).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "0 made")
	after, err := exec.CommandContext(t.Context(), "sh", "-c", `cat "$0"/* | sha256sum`, dir).Output()
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	require.NotEqual(t, string(before), func() string {
		other, err := exec.CommandContext(t.Context(), "sh", "-c", `cat "$0"/* | sha256sum`, makeSecrets(t)).Output()
		require.NoError(t, err)
		return string(other)
	}(), "another machine has others")
}
