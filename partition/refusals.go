package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// refusals is what a worker knows of writes to the group's buckets that fail: since when
// none of them succeeded, and why.
type refusals struct {
	since time.Time // zero: the last one succeeded
	why   string
	// refused is since when the servers answer and refuse; zero: the last one succeeded, or
	// there was no answer, as for a worker that is cut off.
	refused time.Time
}

// note takes in the outcome of an operation. A conflict is an answer of servers that
// work.
func (r *refusals) note(in kvInput, now time.Time) {
	switch {
	case in.op != opCreate && in.op != opUpdate:
	case in.err == nil, errors.Is(in.err, errConflict), errors.Is(in.err, errUnderWay), errors.Is(in.err, errNotFound):
		*r = refusals{}
	default:
		if r.since.IsZero() {
			r.since = now
		}
		var api *jetstream.APIError
		switch answered := errors.As(in.err, &api); {
		case !answered:
			r.refused = time.Time{}
		case r.refused.IsZero():
			r.refused = now
		}
		r.why = fmt.Sprintf("writing %s to bucket %s: %v", in.key, in.bucket, in.err)
	}
}

// refusalAnswer is what a worker answers who asks why leases are not written. It can't
// write it anywhere.
type refusalAnswer struct {
	Since time.Time `json:"since"` // by its own clock
	Why   string    `json:"why"`
}

func refusalSubject(group string) string { return "muster." + group + ".refusals" }

// answerRefusals has a worker answer while its writes fail, as refused tells.
func answerRefusals(nc *nats.Conn, group string, refused func() (since time.Time, why string)) (*nats.Subscription, error) {
	return nc.Subscribe(refusalSubject(group), func(msg *nats.Msg) {
		if since, why := refused(); why != "" {
			_ = msg.Respond(record.Encode(refusalAnswer{since, why}))
		}
	})
}

// refusalWait is how long an answer is waited for: no worker answers whose writes succeed.
const refusalWait = 500 * time.Millisecond

// askRefused asks the workers of a group why they write no leases, and returns the first
// answer; "" without one.
func askRefused(ctx context.Context, nc *nats.Conn, group string) string {
	ctx, cancel := context.WithTimeout(ctx, refusalWait)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, refusalSubject(group), nil)
	var a refusalAnswer
	if err != nil || json.Unmarshal(msg.Data, &a) != nil {
		return ""
	}
	return a.Why
}
