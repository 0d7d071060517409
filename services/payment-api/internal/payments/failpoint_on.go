//go:build failpoints

package payments

import (
	"os"
	"strings"
	"syscall"
)

// failpoint ends the process, as nothing can be caught, if APIPAY_FAILPOINTS names the point. With =stop behind the name it
// stands still there until somebody sends SIGCONT.
func failpoint(point string) {
	for named := range strings.SplitSeq(os.Getenv("APIPAY_FAILPOINTS"), ",") {
		switch named {
		case point:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		case point + "=stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}
}
