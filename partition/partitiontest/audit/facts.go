package audit

// Rule is the name of a promise.
type Rule string

// The promises; the package's documentation says what each means.
const (
	Lost        Rule = "lost"
	Twice       Rule = "twice"
	Order       Rule = "order"
	OneHandler  Rule = "one-handler"
	ZombieFence Rule = "zombie-fence"
	FenceGrows  Rule = "fence-grows"
	FenceUnique Rule = "fence-unique"
	DeadLetter  Rule = "dead-letter"
	Unpublished Rule = "unpublished"
)

// Violation is a promise that was broken, and how.
type Violation struct {
	Rule Rule
	Text string
}

// String returns the rule and the text.
func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Fence is a fencing token, such as partition.Fence. Compare is negative if it is lower than
// the other.
type Fence[F any] interface {
	comparable
	Compare(other F) int
}

// Standing is what may be said of a handler at a moment.
type Standing int

const (
	// Valid is a handler whose worker has a valid lease.
	Valid Standing = iota
	// Stale is a handler whose worker has no valid lease, and has not interrupted it yet,
	// such as that of a process that is stopped.
	Stale
	// Interrupted is a handler whose context has ended.
	Interrupted
	// Over is a handler that has returned, or whose process is dead.
	Over
)

// Handling is one call of a handler.
type Handling[W comparable, F Fence[F]] struct {
	Worker   W
	Fence    F
	Number   int             // of the message, from 1
	Standing func() Standing // now
}
