package chaos

import (
	"fmt"
	"io"
	"time"
)

// Failed tells whether an oracle found something.
func (r Result) Failed() bool { return len(r.Violations) > 0 || r.Events == 0 }

// Report writes the result as Markdown.
func (r Result) Report(w io.Writer) {
	broker := "embedded broker (synced to disk)"
	if r.Apache {
		broker = "Apache Kafka (KRaft, one node)"
	}
	form := "full"
	if r.Short {
		form = "short"
	}
	fmt.Fprintf(w, "## %s, %d replicas, %d kills, %s form\n\n", broker, r.Replicas, r.Rounds, form)
	fmt.Fprintf(w, "%s, seed %d, %s long, load average %s before and %s after (two cores, everything on them).\n",
		r.Began.UTC().Format(time.DateOnly), r.Seed, r.Took.Round(time.Second), r.Load[0], r.Load[1])
	fmt.Fprintf(w, "%d events committed, %d records read; %d transactions whose commit was not answered.\n\n", r.Events, r.Records, r.Unknown)
	fmt.Fprintf(w, "| Fault | times | took (s) | oldest event < 1 s again after (s) | duplicates | in flight at most |\n|---|---|---|---|---|---|\n")
	for _, o := range r.Outcomes {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.2f | %d | %d |\n", o.Fault, o.Times, o.Took.Seconds(), o.Recovered.Seconds(), o.Duplicates, o.Allowed)
	}
	fmt.Fprintf(w, "\n| Oracle | | |\n|---|---|---|\n")
	for _, o := range oracles {
		verdict := "holds"
		if r.Violations[o.name] != "" {
			verdict = "**violated**: " + r.Violations[o.name]
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", o.name, o.what, verdict)
	}
	fmt.Fprintln(w)
}
