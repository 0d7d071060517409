package relay

// The fail points: places where a process may die that leave the most to be found out by others. They do something
// only in binaries built with -tags failpoints.
const (
	// afterClaim: rows are locked, nothing was produced.
	afterClaim = "relay_after_claim"
	// afterProduce: the broker has confirmed, nothing of it is marked.
	afterProduce = "relay_after_produce"
	// afterMark: everything is marked, COMMIT was not sent.
	afterMark = "relay_after_mark"
	// commitSent: COMMIT is on its way, its answer was not read.
	commitSent = "relay_commit_sent"
)
