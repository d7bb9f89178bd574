package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/internal/record"
)

// Times of calls.
const (
	// callTimeout bounds a call whose context has no deadline.
	callTimeout = 10 * time.Second
	// ownerPatience is how long a call looks for the key's owner.
	ownerPatience = 2 * time.Second
)

// Caller sends calls to the owners of their keys. It follows the assignment map, so a call is one
// request to one worker. Several goroutines may use one.
type Caller struct {
	nc   *nats.Conn
	cfg  Config
	maps *mapFollower
	open openCalls
}

// Caller reads how the group was provisioned, begins to follow its assignment map, and returns a
// caller. ctx bounds that alone. The group's workers need a handler that is a CallHandler. Of the
// users with permissions of their own, role.Caller may do so.
func (g *Group) Caller(ctx context.Context) (*Caller, error) {
	cfg, err := g.Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing to call keys of group %s: %w", g.name, err)
	}
	c := &Caller{nc: g.nc, cfg: cfg}
	c.maps, err = followMap(ctx, g.nc, g.name, c.open.left)
	if err != nil {
		return nil, fmt.Errorf("preparing to call keys of group %s: %w", g.name, err)
	}
	return c, nil
}

// Close stops following the map. Calls that wait for their answers are not ended.
func (c *Caller) Close() { c.maps.close() }

// Call has the owner of a key serve a request, and returns the answer of its CallHandler. It waits
// until ctx ends, or for 10 s if ctx has no deadline. data and the answer are bounded by the
// servers' max_payload, 1 MB by default; the error of a larger request wraps nats.ErrMaxPayload.
//
// While the key moves to another worker, the call follows it: a worker that is not the owner, or
// whose lease may have ended, refuses the call without an effect, and Call sends it to the next
// one. If no worker takes it within 2 s or before ctx ends, the error wraps ErrNoOwner.
//
// Any other error of a call that was sent leaves open whether it had an effect: a *CallError whose
// Served is true, as of the handler's own error, or one that wraps ctx's, when no answer came in
// time. A *CallError whose Served is false says that the worker rejected the call.
func (c *Caller) Call(ctx context.Context, key string, data []byte) ([]byte, error) {
	if err := c.cfg.CheckKey(key); err != nil {
		return nil, fmt.Errorf("calling key %q of group %s: %w", key, c.cfg.Name, err)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}

	route := callRoute{key: key}
	search, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	refused := errors.New("there is no assignment map yet")
	for {
		a, changed := c.maps.latest()
		t, found := route.next(a)
		if !found {
			if !route.exhausted() && c.maps.newer(search, changed) {
				continue
			}
			return nil, c.noOwner(ctx, key, refused)
		}

		answer, err := c.ask(ctx, search, t, key, data)
		if !errors.Is(err, errRefused) {
			return answer, err
		}
		refused = err
	}
}

// noOwner is the error of a call that no worker has taken. One that was cancelled is an error of
// its context, too.
func (c *Caller) noOwner(ctx context.Context, key string, refused error) error {
	err := fmt.Errorf("calling key %s of group %s: %w (%w)", key, c.cfg.Name, ErrNoOwner, refused)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return err
}

// errRefused is of a call that a worker has not served, so another may.
var errRefused = errors.New("not served")

// ask sends a call to one worker. search ends when no owner is looked for any longer.
func (c *Caller) ask(ctx, search context.Context, t callTarget, key string, data []byte) ([]byte, error) {
	msg := c.request(ctx, search, t, key, data)
	ctx, forget := c.open.add(ctx, t.owner)
	defer forget()
	if a, _ := c.maps.latest(); a.Index(t.owner) == record.None { // since the target was found
		return nil, fmt.Errorf("worker %s has left: %w", t.owner.ID, errRefused)
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("worker %s is not there, or its handler answers no calls: %w", t.owner.ID, errRefused)
	case err != nil && errors.Is(context.Cause(ctx), errOwnerLeft):
		return nil, &CallError{Key: key, Worker: t.owner.ID, Served: true, Reason: errOwnerLeft.Error()}
	case err != nil:
		return nil, fmt.Errorf("calling key %s of group %s, worker %s: %w", key, c.cfg.Name, t.owner.ID, err)
	}

	failed := &CallError{Key: key, Worker: t.owner.ID, Reason: string(answer.Data)}
	switch outcome := record.CallOutcome(answer.Header.Get(record.CallOutcomeHeader)); outcome {
	case record.CallServed:
		return answer.Data, nil
	case record.CallMoved, record.CallNotYet, record.CallNoLease:
		return nil, fmt.Errorf("worker %s answers %s: %w", t.owner.ID, outcome, errRefused)
	case record.CallBusy:
		failed.Reason = "it has too many requests: call again later"
		return nil, failed
	case record.CallInvalid:
		return nil, failed
	case record.CallFailed:
	default:
		failed.Reason = fmt.Sprintf("the answer has the unknown outcome %q", outcome)
	}
	failed.Served = true
	return nil, failed
}

// request is what one worker gets of a call.
func (c *Caller) request(ctx, search context.Context, t callTarget, key string, data []byte) *nats.Msg {
	v := record.CallRequest{Schema: record.Schema, Key: key, Layout: t.number, Slots: t.slots, Slot: t.slot,
		Fence: record.Fence(t.fence), Timeout: millisecondsLeft(ctx)}
	if t.waits {
		v.Wait = millisecondsLeft(search)
	}
	header := nats.Header{record.CallHeader: []string{string(record.Encode(v))}}
	return &nats.Msg{Subject: callSubject(c.cfg.Name, t.owner), Data: data, Header: header}
}

// millisecondsLeft returns the time until a context's deadline, from 1 to the most that a request
// can say.
func millisecondsLeft(ctx context.Context) int64 {
	at, _ := ctx.Deadline()
	left := min(time.Until(at), record.MaxCallTimeout)
	return max(left.Milliseconds(), 1)
}
