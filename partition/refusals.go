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

// answerRefusals has a worker answer while its writes fail.
func answerRefusals(nc *nats.Conn, group string, status func() Status) (*nats.Subscription, error) {
	return nc.Subscribe(refusalSubject(group), func(msg *nats.Msg) {
		if s := status(); s.Refused != "" {
			_ = msg.Respond(record.Encode(refusalAnswer{s.RefusedSince, s.Refused}))
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

// staleAge is how old a lease can be at most: the server counts whole seconds, and
// removes what has expired a moment later. An older one could not be removed either,
// which a server without room for anything does not do.
func staleAge(ttl time.Duration) time.Duration { return ttlOf(ttl) + 2*time.Second }

// now is the servers' time of the view, by which renewals are told.
func (v *View) now() time.Time {
	if v.ServerTime.IsZero() {
		return v.At
	}
	return v.ServerTime
}

// stale reports whether a lease that was renewed at a time must have ended.
func (v *View) stale(renewed time.Time) bool {
	return v.LeaseTTL > 0 && !renewed.IsZero() && v.now().Sub(renewed) > staleAge(v.LeaseTTL)
}

// leaderValid reports whether a worker leads by a lease that has not ended.
func (v *View) leaderValid() bool { return v.Leader != "" && !v.stale(v.LeaderRenewed) }

// staleLeases counts the leases that have ended, and returns the age of the newest lease
// of all.
func (v *View) staleLeases() (n int, newest time.Duration) {
	for i, m := range v.Leases {
		if v.stale(m.Renewed) {
			n++
		}
		if age := v.now().Sub(m.Renewed); i == 0 || age < newest {
			newest = age
		}
	}
	return n, newest
}

// trouble returns why the group can't be STABLE, as far as leases tell; "" for nothing.
func (v *View) trouble() string {
	n, newest := v.staleLeases()
	var text string
	switch {
	case n > 0 && n == len(v.Leases):
		text = fmt.Sprintf("no lease was written for %v", newest.Round(time.Second))
	case n > 0:
		text = fmt.Sprintf("%d of %d leases have ended", n, len(v.Leases))
	case v.assignment != nil && !v.leaderValid():
		text = "no worker leads"
	default:
		return ""
	}
	if v.Refused != "" {
		text += ": " + v.Refused
	}
	return text
}
