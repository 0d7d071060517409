package stack

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	t.Parallel()

	t.Run("IsFreeAtOnceWhileProgramsAreStarted", func(t *testing.T) {
		t.Parallel()
		cfg := Config{Dir: t.TempDir()}
		done := make(chan struct{})
		var starters sync.WaitGroup
		defer starters.Wait()
		defer close(done)
		for range 4 {
			starters.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						_ = exec.Command("true").Run()
					}
				}
			})
		}
		for range 2000 {
			unlock, err := takeLock(cfg)
			require.NoError(t, err)
			unlock()
		}
	})

	t.Run("NeverHasItsOwnProcessStopped", func(t *testing.T) {
		t.Parallel()
		cfg := Config{Dir: t.TempDir()}
		unlock, err := takeLock(cfg)
		require.NoError(t, err)
		pid, err := os.ReadFile(lockPath(cfg))
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(os.Getpid()), string(pid))
		_, err = stopSupervisor(cfg)
		require.ErrorContains(t, err, "is this process's own")
		unlock()
		again, err := stopSupervisor(cfg)
		require.NoError(t, err)
		again()
	})
}
