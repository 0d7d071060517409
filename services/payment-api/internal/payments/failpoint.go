package payments

// The fail points: places where a process may die, or stand still, that leave the most to be found out by others. They do
// something only in binaries built with -tags failpoints.
const (
	// afterT1: the attempt is committed, the gateway was not called.
	afterT1 = "after_t1"
	// beforeCall: the call was found to be in time and has not left.
	beforeCall = "before_call"
	// gatewayAccepted: the gateway has answered, nothing of it is written.
	gatewayAccepted = "gateway_accepted"
	// beforeCommit: every lock is held, the last writes and COMMIT were not sent.
	beforeCommit = "before_commit"
	// afterCommit: COMMIT took effect, the client was not answered.
	afterCommit = "after_commit"
)
