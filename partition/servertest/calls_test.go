package servertest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
	beside "github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// callsFor makes TestCalls a long test: go test ./partition/servertest -run TestCalls$ -calls.for 10m -v
var callsFor = flag.Duration("calls.for", 0, "how long TestCalls scales and kills workers, at least once")

// callLog is what the workers of a group have served, and who owned the slots by the maps.
type callLog struct {
	mu      sync.Mutex
	serving map[string]context.Context // by key; done: its worker may not own the key any more
	fences  map[int]partition.Fence    // by slot: the highest that was served with
	served  map[servedAs]int
	owners  map[servedAs]bool
	faults  []string
}

// servedAs is whom a slot was served by.
type servedAs struct {
	slot  int
	fence partition.Fence
}

func newCallLog() *callLog {
	return &callLog{serving: map[string]context.Context{}, fences: map[int]partition.Fence{}, served: map[servedAs]int{}, owners: map[servedAs]bool{}}
}

// fault notes a fault; mu is held.
func (l *callLog) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// follow notes the owners and next owners by every map, until ctx ends.
func (l *callLog) follow(ctx context.Context, g *partition.Group) error {
	maps, err := g.WatchMap(ctx)
	if err != nil {
		return err
	}
	go func() {
		for m := range maps {
			l.mu.Lock()
			for slot, owner := range m.Owner {
				if owner >= 0 {
					l.owners[servedAs{slot, partition.Fence{Version: m.Since[slot], Claim: m.Workers[owner].Claim}}] = true
				}
			}
			for slot, move := range m.Moves {
				l.owners[servedAs{slot, partition.Fence{Version: move.Version, Claim: m.Workers[move.Next].Claim}}] = true
			}
			l.mu.Unlock()
		}
	}()
	return nil
}

// answering is a handler that answers calls, too.
type answering struct {
	handler
	log *callLog
}

func (a answering) HandleCall(ctx context.Context, c partition.Call) ([]byte, error) {
	a.log.begin(ctx, a.r, c)
	defer a.log.end(ctx, c)
	time.Sleep(200 * time.Microsecond)
	if string(c.Data) == "panic" {
		panic("as it was asked to")
	}
	return []byte(a.name + " " + c.Key), nil
}

func (l *callLog) begin(ctx context.Context, r *recorder, c partition.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.serving[c.Key]; other != nil && other.Err() == nil && ctx.Err() == nil {
		l.fault("two calls of %s are served at a time", c.Key)
	}
	l.serving[c.Key] = ctx
	if c.Fence.Compare(l.fences[c.Slot]) < 0 {
		l.fault("a call of %s is served with fence %v after %v", c.Key, c.Fence, l.fences[c.Slot])
	} else {
		l.fences[c.Slot] = c.Fence
	}
	l.served[servedAs{c.Slot, c.Fence}]++

	r.mu.Lock()
	defer r.mu.Unlock()
	if by, busy := r.running[c.Key]; busy && ctx.Err() == nil {
		l.fault("a call of %s is served while %s handles a message of it", c.Key, by)
	}
}

func (l *callLog) end(ctx context.Context, c partition.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving[c.Key] == ctx {
		delete(l.serving, c.Key)
	}
}

// check reports what must not have happened: a fault, or a call that was served with a fence that
// no map gave to anybody.
func (l *callLog) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	for by, n := range l.served {
		if !l.owners[by] {
			t.Errorf("%d calls of slot %d were served with fence %v, which no map has", n, by.slot, by.fence)
		}
	}
}

// callTally is what became of calls.
type callTally struct {
	mu                               sync.Mutex
	served, noOwner, failed, expired int
	took                             []time.Duration // of those served
}

// callOn calls keys one after another until ctx ends. Every error must be one that Call documents.
func (c *callTally) callOn(ctx context.Context, t *testing.T, calls *partition.Caller, keys, first int) {
	for i := first; ctx.Err() == nil; i++ {
		key := partition.JoinKey(fmt.Sprint("a", i%keys), fmt.Sprint("b", i%keys%3))
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		began := time.Now()
		answer, err := calls.Call(bounded, key, []byte("?"))
		took := time.Since(began)
		cancel()

		c.mu.Lock()
		var failed *partition.CallError
		switch {
		case err == nil:
			c.served++
			c.took = append(c.took, took)
			if !strings.HasSuffix(string(answer), " "+key) {
				t.Errorf("a call of %s is answered with %q", key, answer)
			}
		case errors.Is(err, partition.ErrNoOwner):
			c.noOwner++
		case errors.As(err, &failed) && failed.Key == key && failed.Worker != "":
			c.failed++
		case errors.Is(err, context.DeadlineExceeded):
			c.expired++
		default:
			t.Errorf("a call of %s ends with %v, which is none of its errors", key, err)
		}
		c.mu.Unlock()
	}
}

// TestCalls has callers call keys while three workers become five and three again, and one of them
// is killed, beside messages of the same keys. No call is served by a worker that does not own the
// key, or together with a message of it, and each error says what happened.
func TestCalls(t *testing.T) {
	t.Parallel()
	const keys = 100
	g := startGroup(t, oneServer(t), time.Millisecond)
	log := newCallLog()
	group := partition.Open(g.connect("caller"), g.cfg.Name)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := log.follow(ctx, group); err != nil {
		t.Fatal(err)
	}
	calls, err := group.Caller(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()

	var ws []*runningWorker
	started := 0
	scaleTo := func(n int) {
		g.expect(n)
		for ; len(ws) > n; ws = ws[:len(ws)-1] {
			ws[len(ws)-1].stop()
		}
		for len(ws) < n {
			started++
			name := fmt.Sprint("w", started)
			ws = append(ws, g.startWith(name, answering{handler{g.rec, name}, log}))
		}
		await.That(t, fmt.Sprintf("%d workers settled", n), func() bool {
			g.publish(keys, 1)
			return g.settled(ws...)()
		})
	}
	scaleTo(3)
	tally := &callTally{}
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() { tally.callOn(ctx, t, calls, keys, i*keys/4) })
	}
	rounds := 0
	for end := time.Now().Add(*callsFor); rounds == 0 || time.Now().Before(end); rounds++ {
		scaleTo(5)
		scaleTo(3)
		ws[0].nc.Close()
		ws = ws[1:]
		await.That(t, "the slots of the killed worker are taken", func() bool {
			g.publish(keys, 1)
			return g.settled(ws...)()
		})
	}

	stop()
	callers.Wait()
	g.check(rounds * keys)
	for i := range keys {
		key := partition.JoinKey(fmt.Sprint("a", i), fmt.Sprint("b", i%3))
		if _, err := calls.Call(t.Context(), key, nil); err != nil {
			t.Errorf("at rest: %v", err)
		}
	}
	log.check(t)
	tally.mu.Lock()
	defer tally.mu.Unlock()
	if tally.served == 0 {
		t.Fatal("no call was served")
	}
	slices.Sort(tally.took)
	t.Logf("%d rounds, %d calls served, p50 %v, p99 %v, slowest %v; %d without an owner, %d failed, %d without an answer", rounds, tally.served,
		tally.took[tally.served/2], tally.took[tally.served*99/100], tally.took[tally.served-1], tally.noOwner, tally.failed, tally.expired)
}

// TestCallErrors has calls end in each other way.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0)
	nc := g.connect("caller")
	calls, err := partition.Open(nc, g.cfg.Name).Caller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	key := partition.JoinKey("a1", "b1")

	t.Run("a group without a map", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := calls.Call(ctx, key, nil)
		if !errors.Is(err, partition.ErrNoOwner) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrNoOwner and the context's error", err)
		}
	})
	t.Run("a key that can't be", func(t *testing.T) {
		if _, err := calls.Call(t.Context(), "a1", nil); err == nil || errors.Is(err, partition.ErrNoOwner) {
			t.Errorf("got %v, want an error about the key", err)
		}
	})

	// A middleware that knows nothing of calls keeps the handler's HandleCall.
	logs := func(next partition.Handler) partition.Handler { return partition.HandlerFunc(next.Handle) }
	large := answering{handler{g.rec, "only"}, newCallLog()}
	w := g.startWith("only", partition.Wrap(largeAnswers{large}, logs))
	await.That(t, "the worker holds every slot", g.settled(w))

	t.Run("a panic", func(t *testing.T) {
		_, err := calls.Call(t.Context(), key, []byte("panic"))
		var failed *partition.CallError
		if !errors.As(err, &failed) || !failed.Served || !strings.Contains(failed.Reason, "as it was asked to") {
			t.Errorf("got %v, want the panic", err)
		}
		if _, err := calls.Call(t.Context(), key, nil); err != nil {
			t.Errorf("the next call of the key: %v", err)
		}
	})
	t.Run("an answer that is too large", func(t *testing.T) {
		_, err := calls.Call(t.Context(), key, []byte("large"))
		var failed *partition.CallError
		if !errors.As(err, &failed) || !strings.Contains(failed.Reason, "the servers allow") {
			t.Errorf("got %v, want an error about the size", err)
		}
	})
	t.Run("a request that is too large", func(t *testing.T) {
		_, err := calls.Call(t.Context(), key, make([]byte, nc.MaxPayload()))
		if !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("got %v, want nats.ErrMaxPayload", err)
		}
	})
	t.Run("a deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := calls.Call(ctx, key, []byte("wait"))
		var failed *partition.CallError // if the worker was faster to notice
		if errors.Is(err, partition.ErrNoOwner) || !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &failed) {
			t.Errorf("got %v, want the context's error or the handler's", err)
		}
	})
	t.Run("a malformed request", func(t *testing.T) {
		m, err := partition.Open(nc, g.cfg.Name).Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		to := fmt.Sprintf("muster.%s.worker.%s.%d.call", g.cfg.Name, m.Workers[0].ID, m.Workers[0].Claim)
		answer, err := nc.Request(to, []byte("?"), await.Patience)
		if err != nil || answer.Header.Get("Muster-Call-Outcome") != "invalid" {
			t.Errorf("got %v, %v, want it to be rejected", answer, err)
		}
	})
	t.Run("a handler that answers no calls", func(t *testing.T) {
		other := startGroup(t, servers{url: beside.Start(t, beside.Options{})}, 0)
		await.That(t, "the worker holds every slot", other.settled(other.start("mute")))
		calls, err := partition.Open(other.connect("caller"), other.cfg.Name).Caller(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer calls.Close()
		if _, err := calls.Call(t.Context(), key, nil); !errors.Is(err, partition.ErrNoOwner) {
			t.Errorf("got %v, want ErrNoOwner", err)
		}
	})
}

// largeAnswers answers "large" with more than the servers allow, and "wait" when its context ends.
type largeAnswers struct{ answering }

func (l largeAnswers) HandleCall(ctx context.Context, c partition.Call) ([]byte, error) {
	switch string(c.Data) {
	case "large":
		return make([]byte, 2<<20), nil
	case "wait":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.answering.HandleCall(ctx, c)
}
