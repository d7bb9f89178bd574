package audit

import "fmt"

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

// Auditor judges the facts of one run. W identifies a worker, and is printed with %v. It is not
// safe for concurrent use: facts have an order.
type Auditor[W comparable, F Fence[F]] struct {
	violated func(Violation)
	unfenced bool // fences aren't judged any more
	slots    []*Slot[W, F]
	keys     []*Key[W, F]
}

// New returns an auditor that reports each violation when it happens.
func New[W comparable, F Fence[F]](violated func(Violation)) *Auditor[W, F] {
	return &Auditor[W, F]{violated: violated}
}

func (a *Auditor[W, F]) violate(r Rule, format string, args ...any) {
	ofFence := r == FenceGrows || r == FenceUnique || r == ZombieFence
	if a.unfenced && ofFence {
		return
	}
	a.violated(Violation{r, fmt.Sprintf(format, args...)})
}

// WentBack notes that the broker went back to an earlier state: what was published until now
// may be delivered again, also after later messages.
func (a *Auditor[W, F]) WentBack() {
	for _, k := range a.keys {
		k.replayed = len(k.messages)
	}
}

// ForgetFences notes that the group has lost its map, and no worker lives that has seen it.
// Until the next write to a slot its owners learn the fence by being rejected.
func (a *Auditor[W, F]) ForgetFences() {
	for _, s := range a.slots {
		s.forgotten = true
	}
}

// IgnoreFences notes that what fences rest on is lost, such as the revisions of a bucket that went
// back to an earlier state. From now on a store's decisions count, and no fence is a violation.
func (a *Auditor[W, F]) IgnoreFences() { a.unfenced = true }

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
