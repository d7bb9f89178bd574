package partition

// Why a plan is made.
const (
	reasonCrash      = "crash"      // for the slots of failed workers
	reasonBalance    = "balance"    // for a group at rest that an earlier plan could not balance
	reasonWeights    = "weights"    // the keys' weights have changed
	reasonOverrides  = "overrides"  // an operator has changed them
	reasonResharding = "resharding" // for a new number of slots
)
