package partitiontest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest"
)

// store keeps what handlers write by key, and rejects lower fences unless it is careless.
type store struct {
	careless bool

	mu     sync.Mutex
	fences map[string]partition.Fence
	writes map[string][]uint64 // sequences, each once
	owners map[ownership]string
	work   map[ownership]int // handlers that are running
	faults []string
}

// ownership is a time in which a key has one owner.
type ownership struct {
	key   string
	fence partition.Fence
}

func newStore() *store {
	return &store{fences: make(map[string]partition.Fence), writes: make(map[string][]uint64), owners: make(map[ownership]string), work: make(map[ownership]int)}
}

// begins notes that a worker begins with a message.
func (s *store) begins(worker string, m partition.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := ownership{m.Key, m.Fence}
	if other, ok := s.owners[o]; ok && other != worker {
		s.faults = append(s.faults, fmt.Sprintf("%s and %s own %s with the fence %s", other, worker, m.Key, m.Fence))
	}
	s.owners[o] = worker
	if s.work[o]++; s.work[o] > 1 {
		s.faults = append(s.faults, fmt.Sprintf("%s handles two messages of %s at a time", worker, m.Key))
	}
}

func (s *store) ends(m partition.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work[ownership{m.Key, m.Fence}]--
}

func (s *store) write(m partition.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.careless && m.Fence.Compare(s.fences[m.Key]) < 0 {
		return fmt.Errorf("writing %d: %w", m.Sequence, partition.ErrFenced)
	}
	s.fences[m.Key] = m.Fence
	if !slices.Contains(s.writes[m.Key], m.Sequence) {
		s.writes[m.Key] = append(s.writes[m.Key], m.Sequence)
	}
	return nil
}

// run runs a test with one handler for all workers.
func run(t *testing.T, o partitiontest.Options, h partition.HandlerFunc, test func(*testing.T, *partitiontest.Group)) {
	t.Helper()
	partitiontest.Run(t, o, func(string) partition.Handler { return h }, test)
}

func publish(g *partitiontest.Group, key string, n int) {
	for range n {
		g.Publish(partition.Outgoing{Key: key})
	}
}

// TestKill: the key of a killed worker goes to another with a higher fence, the message that it had
// in work comes again, and the order stays.
func TestKill(t *testing.T) {
	t.Parallel()
	var seen []partition.Message
	first := true
	handle := func(ctx context.Context, m partition.Message) error {
		seen = append(seen, m)
		if first {
			first = false
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	run(t, partitiontest.Options{}, handle, func(t *testing.T, g *partitiontest.Group) {
		publish(g, "a", 3)
		time.Sleep(time.Second)
		killed, began := g.Owner("a"), time.Now()
		g.Kill(killed)
		g.Settle()

		if took := time.Since(began); took != 650*time.Millisecond {
			t.Errorf("the takeover took %s, want 650ms", took)
		}
		if owner := g.Owner("a"); owner == killed || owner == "" {
			t.Errorf("after %s was killed, %q owns its key", killed, owner)
		}
		var attempts []int
		var order []uint64
		for _, m := range seen {
			attempts, order = append(attempts, m.Attempt), append(order, m.Sequence)
		}
		if !slices.Equal(attempts, []int{1, 1, 1, 1}) || !slices.Equal(order, []uint64{1, 1, 2, 3}) {
			t.Errorf("the attempts are %v of messages %v, want 1 1 1 1 of 1 1 2 3", attempts, order)
		}
		if seen[1].Fence.Compare(seen[0].Fence) <= 0 {
			t.Errorf("the new owner's fence is %s, want one above %s", seen[1].Fence, seen[0].Fence)
		}
	})
}

// TestPoison: a message that kills each worker that handles it becomes a dead letter.
func TestPoison(t *testing.T) {
	t.Parallel()
	var attempts []int
	handle := func(ctx context.Context, m partition.Message) error {
		if m.Key != "poison" {
			return nil
		}
		attempts = append(attempts, m.Attempt)
		<-ctx.Done()
		return ctx.Err()
	}
	run(t, partitiontest.Options{Workers: 6, Attempts: 3}, handle, func(t *testing.T, g *partitiontest.Group) {
		publish(g, "poison", 1)
		for range 4 {
			time.Sleep(time.Second) // a handler has it
			g.Kill(g.Owner("poison"))
		}
		g.Settle()
		letters := g.DeadLetters()
		if len(letters) != 1 || letters[0].Attempts != 3 {
			t.Errorf("the dead letters are %+v, want one after 3 attempts", letters)
		}
		if !slices.Equal(attempts, []int{1, 1, 2, 3}) {
			t.Errorf("the attempts are %v, want 1 1 2 3", attempts)
		}
	})
}

// TestPause: a paused worker writes after another has taken its key over. Its store has to reject that.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, careless := range []bool{false, true} {
		t.Run(fmt.Sprintf("careless store %t", careless), func(t *testing.T) {
			t.Parallel()
			s := newStore()
			s.careless = careless
			late := make(chan error, 1)
			var first atomic.Bool
			handle := func(_ context.Context, m partition.Message) error {
				if first.CompareAndSwap(false, true) {
					time.Sleep(5 * time.Second)
					late <- s.write(m)
					return nil
				}
				return s.write(m)
			}
			run(t, partitiontest.Options{}, handle, func(t *testing.T, g *partitiontest.Group) {
				publish(g, "a", 2)
				time.Sleep(time.Second)
				g.Pause(g.Owner("a"), 10*time.Second)
				g.Settle()
				time.Sleep(20 * time.Second)

				if err := <-late; errors.Is(err, partition.ErrFenced) == careless {
					t.Errorf("the write of the paused worker: %v", err)
				}
				if got := s.writes["a"]; !slices.Equal(got, []uint64{1, 2}) {
					t.Errorf("written are %v, want 1 2", got)
				}
				if got := g.Workers(); len(got) != 3 {
					t.Errorf("after the pause the workers are %v, want three", got)
				}
			})
		})
	}
}

// TestShortPause: a pause that nobody notices changes no owner, and no message comes again.
func TestShortPause(t *testing.T) {
	t.Parallel()
	handled := 0
	handle := func(context.Context, partition.Message) error {
		time.Sleep(200 * time.Millisecond)
		handled++
		return nil
	}
	run(t, partitiontest.Options{}, handle, func(t *testing.T, g *partitiontest.Group) {
		publish(g, "a", 2)
		time.Sleep(100 * time.Millisecond)
		owner := g.Owner("a")
		g.Pause(owner, 500*time.Millisecond)
		g.Settle()
		if got := g.Owner("a"); got != owner || handled != 2 {
			t.Errorf("%s owns the key, want %s; %d messages were handled, want 2", got, owner, handled)
		}
	})
}

// TestVerdicts: what becomes of a message by what its handler returns.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		fails    func(attempt, call int) error
		attempts []int
		letter   int // its attempts; 0: none
	}{
		"nothing":             {func(int, int) error { return nil }, []int{1}, 0},
		"fails twice":         {func(a, _ int) error { return map[bool]error{true: failed}[a < 3] }, []int{1, 2, 3}, 0},
		"fails for good":      {func(int, int) error { return failed }, []int{1, 2, 3, 4, 5}, 5},
		"panics":              {func(int, int) error { panic("poison") }, []int{1, 2, 3, 4, 5}, 5},
		"gives up":            {func(int, int) error { return partition.GiveUp(failed) }, []int{1}, 1},
		"discards":            {func(int, int) error { return partition.Discard(failed) }, []int{1}, 0},
		"is unavailable":      {func(_, c int) error { return map[bool]error{true: partition.Unavailable(failed)}[c < 8] }, []int{1, 1, 1, 1, 1, 1, 1, 1}, 0},
		"is fenced, and then": {func(_, c int) error { return map[bool]error{true: partition.ErrFenced}[c < 2] }, []int{1, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts []int
			handle := func(_ context.Context, m partition.Message) error {
				if m.Key == "other" {
					return nil
				}
				attempts = append(attempts, m.Attempt)
				return tt.fails(m.Attempt, len(attempts))
			}
			run(t, partitiontest.Options{Slots: 1}, handle, func(t *testing.T, g *partitiontest.Group) {
				publish(g, "a", 1)
				publish(g, "other", 1)
				g.Settle()
				if !slices.Equal(attempts, tt.attempts) {
					t.Errorf("the attempts are %v, want %v", attempts, tt.attempts)
				}
				var letters []int
				for _, l := range g.DeadLetters() {
					letters = append(letters, l.Attempts)
					if name == "panics" && !strings.Contains(l.Stack, "TestVerdicts") {
						t.Errorf("the dead letter of a panic has the stack %q", l.Stack)
					}
				}
				if tt.letter == 0 && letters != nil || tt.letter > 0 && !slices.Equal(letters, []int{tt.letter}) {
					t.Errorf("the dead letters have %v attempts, want %d", letters, tt.letter)
				}
			})
		})
	}
}

// keeper counts the messages of each slot in memory, and says what it is called for.
type keeper struct {
	name string
	log  *[]string
	has  map[int]int
}

func (k *keeper) say(what string) { *k.log = append(*k.log, k.name+" "+what) }

func (k *keeper) Handle(_ context.Context, m partition.Message) error {
	k.has[m.Slot]++
	k.say(fmt.Sprint("handles ", m.Sequence, " as number ", k.has[m.Slot]))
	return nil
}

func (k *keeper) HandleCall(_ context.Context, c partition.Call) ([]byte, error) {
	return fmt.Append(nil, k.has[c.Slot]), nil
}

func (k *keeper) Prepare(_ context.Context, s partition.Slots) error {
	k.has[s.Slots[0]] = 100
	k.say("prepares")
	return nil
}

func (k *keeper) Released(s partition.Slots) {
	delete(k.has, s.Slots[0])
	k.say("releases")
}

func (k *keeper) Export(_ context.Context, s partition.Slots) (io.Reader, error) {
	k.say("exports")
	return bytes.NewReader([]byte{byte(k.has[s.Slots[0]])}), nil
}

func (k *keeper) Import(_ context.Context, s partition.Slots, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err == nil {
		k.has[s.Slots[0]] = int(b[0])
		k.say("imports")
	}
	return err
}

// TestState: a state moves with its slot in a handoff, and is prepared at the start and after a kill.
func TestState(t *testing.T) {
	t.Parallel()
	var log []string
	handler := func(name string) partition.Handler {
		pass := func(next partition.Handler) partition.Handler { return partition.HandlerFunc(next.Handle) }
		return partition.Wrap(&keeper{name, &log, make(map[int]int)}, pass)
	}
	partitiontest.Run(t, partitiontest.Options{Workers: 2, Slots: 1}, handler, func(t *testing.T, g *partitiontest.Group) {
		first := g.Owner("a")
		publish(g, "a", 1)
		g.Settle()
		g.Leave(first)
		publish(g, "a", 1)
		g.Settle()
		answer, err := g.Call(t.Context(), "a", nil)
		second := g.Owner("a")
		third := g.Join()
		g.Settle()
		g.Kill(second)
		_, missing := g.Call(t.Context(), "a", nil)
		publish(g, "a", 1)
		g.Settle()

		if string(answer) != "102" || err != nil {
			t.Errorf("the call is answered by %q, %v", answer, err)
		}
		if !errors.Is(missing, partition.ErrNoOwner) {
			t.Errorf("a call of a key without an owner ends in %v, want ErrNoOwner", missing)
		}
		want := []string{
			first + " prepares", first + " handles 1 as number 101",
			first + " exports", first + " releases", second + " imports", second + " handles 2 as number 102",
			third + " prepares", third + " handles 3 as number 101",
		}
		if !slices.Equal(log, want) {
			t.Errorf("the handlers were called so:\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestHandoffWaits: a worker that leaves ends what it has in work, and nothing comes again.
func TestHandoffWaits(t *testing.T) {
	t.Parallel()
	var calls int
	handle := func(ctx context.Context, _ partition.Message) error {
		calls++
		select {
		case <-time.After(3 * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run(t, partitiontest.Options{}, handle, func(t *testing.T, g *partitiontest.Group) {
		publish(g, "a", 2)
		time.Sleep(time.Second)
		g.Leave(g.Owner("a"))
		g.Settle()
		if calls != 2 {
			t.Errorf("the handler was called %d times, want 2", calls)
		}
	})
}

// TestHandoffCalledOff: the worker that a slot moves to fails while the owner is paused for a moment.
// The slot stays, and its owner goes on.
func TestHandoffCalledOff(t *testing.T) {
	t.Parallel()
	handle := func(_ context.Context, m partition.Message) error {
		if string(m.Data) == "slow" {
			time.Sleep(3 * time.Second)
		}
		return nil
	}
	run(t, partitiontest.Options{Workers: 1, Slots: 2}, handle, func(t *testing.T, g *partitiontest.Group) {
		keys := []string{"a", "b", "c", "d"} // of both slots
		for _, key := range keys {
			g.Publish(partition.Outgoing{Key: key, Data: []byte("slow")})
		}
		joined := g.Join() // one of the slots waits for its handler
		g.Kill(joined)     // which is noticed after 650 ms
		time.Sleep(600 * time.Millisecond)
		g.Pause("worker-0", 100*time.Millisecond)
		time.Sleep(time.Second)
		for _, key := range keys {
			publish(g, key, 1)
		}
		g.Settle()
		for _, key := range keys {
			if owner := g.Owner(key); owner != "worker-0" {
				t.Errorf("%q owns %s, want worker-0", owner, key)
			}
		}
	})
}

// TestReplannedHandoff: the worker that a slot moves to leaves before the handoff is done. It handles
// nothing after that.
func TestReplannedHandoff(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	handled := make(map[string]int)
	handler := func(worker string) partition.Handler {
		return partition.HandlerFunc(func(context.Context, partition.Message) error {
			mu.Lock()
			handled[worker]++
			mu.Unlock()
			time.Sleep(3 * time.Second)
			return nil
		})
	}
	partitiontest.Run(t, partitiontest.Options{Workers: 1, Slots: 2}, handler, func(t *testing.T, g *partitiontest.Group) {
		for _, key := range []string{"a", "b", "c", "d"} {
			publish(g, key, 2)
		}
		time.Sleep(time.Second)
		joined := g.Join()
		time.Sleep(time.Second)
		g.Leave(joined)
		g.Settle()
		mu.Lock()
		defer mu.Unlock()
		if len(handled) != 1 || handled["worker-0"] != 8 {
			t.Errorf("the messages were handled by %v, want all 8 by worker-0", handled)
		}
	})
}

// TestCallWaits: a call waits for its turn, and no longer than its caller does.
func TestCallWaits(t *testing.T) {
	t.Parallel()
	handler := func(string) partition.Handler { return slowCalls{} }
	partitiontest.Run(t, partitiontest.Options{}, handler, func(t *testing.T, g *partitiontest.Group) {
		publish(g, "a", 1)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Call(ctx, "a", nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %s the call ended in %v, want its deadline after 1s", time.Since(began), err)
		}
		if answer, err := g.Call(t.Context(), "a", nil); string(answer) != "served" || err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("after %s the call is answered by %q, %v", time.Since(began), answer, err)
		}
	})
}

// slowCalls handles each message in 3 s, and calls at once.
type slowCalls struct{}

func (slowCalls) Handle(context.Context, partition.Message) error {
	time.Sleep(3 * time.Second)
	return nil
}

func (slowCalls) HandleCall(context.Context, partition.Call) ([]byte, error) {
	return []byte("served"), nil
}

// TestDuplicates: a message with an ID that was published before is not stored.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	handled := 0
	handle := func(context.Context, partition.Message) error { handled++; return nil }
	run(t, partitiontest.Options{}, handle, func(t *testing.T, g *partitiontest.Group) {
		for range 2 {
			g.Publish(partition.Outgoing{Key: "a", ID: "one"})
			g.Publish(partition.Outgoing{Key: "a"})
		}
		g.Settle()
		if handled != 3 {
			t.Errorf("%d messages were handled, want 3", handled)
		}
	})
}

// TestPromises: whatever happens to the workers, every message is written, each key's in order. A
// fence has one owner, which handles one message of a key at a time.
func TestPromises(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			s := newStore()
			handle := func(worker string, m partition.Message) error {
				s.begins(worker, m)
				defer s.ends(m)
				luck := rand.New(rand.NewPCG(seed<<32|m.Sequence, uint64(time.Now().UnixNano())))
				if luck.IntN(2) == 0 {
					time.Sleep(300 * time.Millisecond)
				}
				if luck.IntN(5) == 0 {
					return partition.Unavailable(errors.New("the store is away"))
				}
				return s.write(m)
			}
			o := partitiontest.Options{Workers: 4, InFlight: 1 + int(seed%3)}
			handler := func(worker string) partition.Handler {
				return partition.HandlerFunc(func(_ context.Context, m partition.Message) error { return handle(worker, m) })
			}
			partitiontest.Run(t, o, handler, func(t *testing.T, g *partitiontest.Group) {
				const keys = 8
				for n := range 200 {
					publish(g, fmt.Sprint("key-", rng.IntN(keys)), 1)
					time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
					workers := g.Workers()
					if n%10 > 0 || len(workers) < 2 {
						continue
					}
					switch one := workers[rng.IntN(len(workers))]; rng.IntN(4) {
					case 0:
						g.Kill(one)
					case 1:
						g.Pause(one, time.Duration(rng.IntN(3000))*time.Millisecond)
					case 2:
						g.Join()
					case 3:
						time.Sleep(2 * time.Second) // so that the one that leaves is not a silent one
						if slices.Contains(g.Workers(), one) {
							g.Leave(one)
						}
					}
					if len(g.Workers()) < 3 {
						g.Join()
					}
				}
				g.Settle()
				for _, fault := range s.faults {
					t.Error(fault)
				}
				total := 0
				for key, written := range s.writes {
					total += len(written)
					if !slices.IsSorted(written) {
						t.Errorf("the messages of %s were written in the order %v", key, written)
					}
				}
				if total != 200 {
					t.Errorf("%d of 200 messages were written", total)
				}
			})
		})
	}
}
