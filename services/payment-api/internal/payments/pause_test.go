//go:build failpoints

package payments_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPauseMatrix stops a real process where it may stand still for minutes, and lets it go on once its lease is over and the
// reconciler of somebody else has settled its attempt. There is one charge, and everybody is told the gateway's truth.
func TestPauseMatrix(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"after_t1", "before_call", "gateway_accepted", "before_commit"} {
		for _, operation := range []string{"create", "confirm", "refund"} {
			t.Run(operation+"/"+point, func(t *testing.T) {
				t.Parallel()
				b := setup(t, withConfig(short))
				me := b.me()
				path, body, pi := me.prepare(operation)
				url, victim := b.victim(point+"=stop", envShort+"=1")
				t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
				type outcome struct {
					answer
					err error
				}
				answered := make(chan outcome, 1)
				go func() {
					a, err := me.key("k").doAt(t.Context(), url, http.MethodPost, path, []byte(body))
					answered <- outcome{a, err}
				}()
				b.until(func() bool { return isStopped(t, victim.Process.Pid) }, "the process does not stop")

				// At before_commit its transaction holds the locks, until the database ends it.
				b.until(func() bool {
					require.NoError(t, b.service.ReconcileOnce(t.Context()))
					return b.count(`SELECT count(*) FROM apipay.payment_attempts WHERE status IN ('started', 'unknown')`) == 0
				}, "nobody settles the attempt")
				settledAs := b.count(`SELECT count(*) FROM apipay.payment_attempts WHERE status = 'not_executed'`)
				reached := point == "gateway_accepted" || point == "before_commit"
				require.Equal(t, map[bool]int{true: 0, false: 1}[reached], settledAs, "what the gateway knows decides")

				require.NoError(t, victim.Process.Signal(syscall.SIGCONT))
				late := <-answered
				require.NoError(t, late.err)
				if reached {
					require.Less(t, late.status, 300, late.raw)
				} else {
					late.is(http.StatusServiceUnavailable, "gateway_unavailable")
				}
				last := me.keyed("k", path, body)
				require.Less(t, last.status, 300, last.raw)
				if reached {
					require.Equal(t, late.raw, last.raw, "the stored answer")
				}
				if pi == "" {
					pi = last.id()
				}
				b.settledOnce(operation, pi, last)
			})
		}
	}
}

func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(stat), ") ")
	require.True(t, found)
	return strings.HasPrefix(rest, "T")
}
