package awsapi

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

// Call is one request as it arrived.
type Call struct {
	Service string     // ec2, sts, ssm, secretsmanager or sqs
	Action  string     // for example RunInstances
	Params  url.Values // of the query protocol; of a JSON request its top-level fields
	DryRun  bool
	At      time.Time // by the simulator's clock
	Code    string    // the error that it was answered with; "" for success
}

// Permission returns the call as an IAM policy names it, for example ec2:RunInstances.
func (c Call) Permission() string { return c.Service + ":" + c.Action }

// callLog keeps the requests in the order in which they arrived.
type callLog struct {
	mu     sync.Mutex
	calls  []Call
	onCall func(Call) // nil: nobody watches
}

// note adds a request and returns its index.
func (l *callLog) note(c Call) int {
	l.mu.Lock()
	l.calls = append(l.calls, c)
	index, f := len(l.calls)-1, l.onCall
	l.mu.Unlock()
	if f != nil {
		f(c)
	}
	return index
}

// failed enters the error code that a request was answered with.
func (l *callLog) failed(index int, code string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[index].Code = code
}

// watch makes f see every request when it arrives.
func (l *callLog) watch(f func(Call)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onCall = f
}

// all returns the requests so far.
func (l *callLog) all() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}
