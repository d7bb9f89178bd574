package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

const (
	// callRate is how many calls are made in a second.
	callRate = 100
	// callPatience is how long a call waits for its answer.
	callPatience = 5 * time.Second
	// One call of callWorkEvery works for callWork, so that slots move with calls in progress.
	callWorkEvery = 10
	callWork      = 20 * time.Millisecond
)

// question is the data of a call.
type question struct {
	Number uint64        `json:"number"`
	Work   time.Duration `json:"work"` // ns that its handler takes
}

// calling has calls of random chambers made beside the messages, over a connection of its own. It
// is an open loop: each call is due at its time, whatever became of those before.
type calling struct {
	conn     *nats.Conn
	caller   *partition.Caller
	chambers chambers
	slots    int
	rng      *rand.Rand

	stop  context.CancelFunc
	ended chan struct{} // closed when all calls have ended

	mu   sync.Mutex
	made []audit.Call
}

// startCalling begins to make calls. They end with finish, or with ctx.
func (s *session) startCalling(ctx context.Context) (*calling, error) {
	conn, err := s.ConnectAs(role.Caller, "calls")
	if err != nil {
		return nil, fmt.Errorf("opening the caller: %w", err)
	}
	caller, err := partition.Open(conn, defender.Group).Caller(ctx)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening the caller: %w", err)
	}

	c := &calling{conn: conn, caller: caller, chambers: s.Chambers, slots: s.o.Slots, rng: rand.New(rand.NewPCG(s.o.Seed, 0xca11)), ended: make(chan struct{})}
	making, stop := context.WithCancel(ctx)
	c.stop = stop
	go c.run(ctx, making)
	s.Say("%d calls per second of random chambers begin", callRate)
	return c, nil
}

// run makes calls until making ends, and waits for the answers.
func (c *calling) run(ctx, making context.Context) {
	defer close(c.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	began := time.Now()
	for number := uint64(1); ; number++ {
		due := began.Add(time.Duration(number) * time.Second / callRate)
		if pause(making, time.Until(due)) != nil {
			return
		}
		chamber := c.chambers[c.rng.IntN(len(c.chambers))]
		wg.Go(func() { c.call(ctx, number, chamber, due) })
	}
}

// call makes one call.
func (c *calling) call(ctx context.Context, number uint64, ch defender.Chamber, due time.Time) {
	q := question{Number: number}
	if number%callWorkEvery == 0 {
		q.Work = callWork
	}
	data, err := json.Marshal(q)
	ctx, cancel := context.WithDeadline(ctx, due.Add(callPatience))
	defer cancel()
	made := audit.Call{Number: number, Key: ch.String(), Slot: partition.SlotOf(c.slots, ch.Tool, ch.Name), Work: q.Work, Due: due}
	var answer []byte
	if err == nil {
		answer, err = c.caller.Call(ctx, made.Key, data)
	}

	made.Ended, made.Outcome = time.Now(), outcomeOf(err)
	if err == nil && json.Unmarshal(answer, &made.By) != nil {
		made.By = audit.Server{} // the auditor finds that no worker has given such an answer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, made)
}

// outcomeOf returns what the error of a call says of it.
func outcomeOf(err error) audit.CallOutcome {
	var failed *partition.CallError
	switch {
	case err == nil:
		return audit.CallAnswered
	case errors.Is(err, partition.ErrNoOwner):
		return audit.CallNoOwner
	case errors.As(err, &failed) && !failed.Served:
		return audit.CallRejected
	}
	return audit.CallUncertain
}

// finish makes no more calls, and returns all when the last has ended.
func (c *calling) finish() []audit.Call {
	c.stop()
	<-c.ended
	c.caller.Close()
	c.conn.Close()
	return c.made
}

// judgeCalls has the auditor account for calls, and enters what it found.
func (s *session) judgeCalls(calls []audit.Call, freezes []audit.Freeze) error {
	deaths := map[string]time.Time{}
	for file, ns := range s.endings() {
		deaths[file] = time.Unix(0, ns)
	}
	a, err := audit.AccountCalls(s.rig.records, calls, deaths, freezes)
	if err != nil {
		return err
	}
	for _, f := range a.Faults {
		s.Say("The auditor of calls: %s", f)
	}
	s.check.calls(a)
	return nil
}

// calls checks what the auditor says of calls.
func (c *checks) calls(a audit.CallAccount) {
	r := c.report
	took, quiet := distribution(a.Took), distribution(a.Quiet)
	r.measure("calls", a)
	r.measure("call_ms", took)
	r.measure("call_quiet_ms", quiet)
	r.check("calls answered", "some", a.Answered > 0, "%d of %d", a.Answered, a.Made)
	// On an overloaded machine workers can't confirm their leases in time, and serve no call until they can.
	r.timed("... most of them", "over half", a.Answered > a.Made/2, "%s", percent(a.Answered, a.Made))
	r.check("calls without an answer", "measured", true, "%d without an owner, %d rejected, %d failed or late", a.NoOwner, a.Rejected, a.Uncertain)
	r.check("calls while their slot moved", "measured", true, "%d, no owner %d (%s), failed or late %d (%s)",
		a.Moving, a.MovingRefused, percent(a.MovingRefused, a.Moving), a.MovingUncertain, percent(a.MovingUncertain, a.Moving))
	r.check("due to answered, ms, all calls", "measured", true, "%s", took)
	r.check("... slot at rest, chamber not busy", "measured", true, "%s", quiet)
	equal(r, "calls served without a valid lease", 0, a.WithoutLease)
	equal(r, "calls beside a message or call of the chamber", 0, a.Concurrent)
	r.check("calls served twice", "0", a.ServedTwice == 0, "%d, of %d served", a.ServedTwice, a.Served)
	equal(r, "answers of a worker that has not served the call", 0, a.Misanswered+a.Unasked)
	equal(r, "calls refused, and served all the same", 0, a.ServedRefused)
}

// percent writes a share.
func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1))) }
