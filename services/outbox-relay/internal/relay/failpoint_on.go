//go:build failpoints

package relay

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// armed are the points of APIPAY_FAILPOINTS, "point=n,...", and how many passes are left until the process dies there;
// without a number it dies at the first.
var armed = struct {
	sync.Mutex
	left map[string]int
}{left: parsePoints(os.Getenv("APIPAY_FAILPOINTS"))}

func parsePoints(list string) map[string]int {
	left := map[string]int{}
	for part := range strings.SplitSeq(list, ",") {
		point, number, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			n = 1
		}
		left[point] = n
	}
	return left
}

// isArmed counts a pass and tells whether the process dies at this one.
func isArmed(point string) bool {
	armed.Lock()
	defer armed.Unlock()
	if _, ok := armed.left[point]; !ok {
		return false
	}
	armed.left[point]--
	return armed.left[point] <= 0
}

// failpoint kills the process, as nothing can be caught, at the pass that APIPAY_FAILPOINTS names.
func failpoint(point string) {
	if isArmed(point) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
