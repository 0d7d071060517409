package embedded_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"apipay.io/hub/pkg/devstack/embedded"
)

const envOwner = "EMBEDDED_TEST_OWNER"

// TestMain is also the process that owns a server, for the test that kills it.
func TestMain(m *testing.M) {
	if kind := os.Getenv(envOwner); kind != "" {
		address, _, err := embedded.Start(embedded.Kind(kind))
		fmt.Println(address, err)
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("PostgresNeedsItsPassword", func(t *testing.T) {
		t.Parallel()
		dsn, stop, err := embedded.Start(embedded.Postgres)
		require.NoError(t, err)
		defer stop()
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer conn.Close(t.Context())
		var commits, fsync string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit'), current_setting('fsync')").Scan(&commits, &fsync))
		require.Equal(t, "on", commits)
		require.Equal(t, "off", fsync)

		uri, err := url.Parse(dsn)
		require.NoError(t, err)
		uri.User = url.UserPassword("postgres", "guess")
		_, err = pgx.Connect(t.Context(), uri.String())
		require.ErrorContains(t, err, "password authentication failed")
	})

	t.Run("StopEndsIt", func(t *testing.T) {
		t.Parallel()
		address, stop, err := embedded.Start(embedded.Broker)
		require.NoError(t, err)
		require.True(t, listens(address))
		stop()
		require.False(t, listens(address))
	})

	t.Run("EndsWithAKilledOwner", func(t *testing.T) {
		t.Parallel()
		temp := t.TempDir()
		// The server's user passes through it.
		require.NoError(t, os.Chmod(temp, 0o755))
		require.NoError(t, os.Chmod(filepath.Dir(temp), 0o755))
		owner := exec.Command(os.Args[0])
		owner.Env = append(os.Environ(), envOwner+"="+string(embedded.Postgres), "TMPDIR="+temp)
		out, err := owner.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, owner.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		dsn, _, _ := strings.Cut(line, " ")
		uri, err := url.Parse(dsn)
		require.NoError(t, err)
		require.True(t, listens(uri.Host))

		require.NoError(t, owner.Process.Kill())
		_ = owner.Wait()
		require.Eventually(t, func() bool {
			left, err := filepath.Glob(filepath.Join(temp, "*"))
			return err == nil && len(left) == 0 && !listens(uri.Host)
		}, 10*time.Second, 20*time.Millisecond)
	})

	t.Run("TellsWhyItCannot", func(t *testing.T) {
		t.Parallel()
		owner := exec.Command(os.Args[0])
		owner.Env = append(os.Environ(), envOwner+"="+string(embedded.Postgres), "APIPAY_POSTGRES_BIN=/nonexistent")
		out, err := owner.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, owner.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "APIPAY_POSTGRES_BIN=/nonexistent")
		require.NoError(t, owner.Process.Kill())
		_ = owner.Wait()
	})
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
