package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/state"
)

// TestAMessageThatKillsWorkers: the worker that handles the message ends without a word, as a
// process does that runs out of memory. The message is given up after its attempts, and costs
// one worker more than these; everything else is processed.
func TestAMessageThatKillsWorkers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*partition.Config){
		"one in flight":     func(*partition.Config) {},
		"several in flight": func(c *partition.Config) { c.Delivery.InFlight = 8 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, oneServer(t), 0, withDeadLetters, func(c *partition.Config) { c.Slots = 1 }, change)
			handle := partition.Open(g.pub.Conn(), g.cfg.Name)
			var mu sync.Mutex
			attempts := map[string][]int{} // by data
			var workers []*runningWorker
			start := func(name string) {
				started := make(chan *runningWorker, 1)
				started <- g.startWith(name, partition.HandlerFunc(func(ctx context.Context, m partition.Message) error {
					mu.Lock()
					attempts[string(m.Data)] = append(attempts[string(m.Data)], m.Attempt)
					mu.Unlock()
					if string(m.Data) != "deadly" {
						return nil
					}
					w := <-started
					started <- w
					w.nc.Close() // as a kill does
					<-ctx.Done()
					return ctx.Err()
				}))
				workers = append(workers, <-started)
				started <- workers[len(workers)-1]
			}
			start("w0")
			await.That(t, "one worker settled", g.settled(workers[0]))
			for _, message := range []string{"a.b first", "a.b deadly", "a.b third", "c.d other"} {
				subject, data, _ := strings.Cut(message, " ")
				if _, err := g.pub.Publish(t.Context(), strings.Replace(g.cfg.Subject, "*.*", subject, 1), []byte(data)); err != nil {
					t.Fatal(err)
				}
			}
			var letters []partition.DeadLetter
			await.That(t, "a dead letter", func() bool {
				alive := workers[len(workers)-1]
				if alive.nc.IsClosed() {
					start(fmt.Sprint("w", len(workers)))
				}
				var err error
				letters, err = handle.DeadLetters(t.Context(), 0, 100)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				return len(letters) > 0
			})
			await.That(t, "everything else processed", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(attempts["first"]) > 0 && len(attempts["third"]) > 0 && len(attempts["other"]) > 0
			})
			mu.Lock()
			defer mu.Unlock()
			const most = 3
			if n := len(attempts["deadly"]); n < most || n > most+1 {
				t.Errorf("the deadly message was tried %d times, as attempts %v, want %d or one more", n, attempts["deadly"], most)
			}
			if l := letters[0]; len(letters) != 1 || string(l.Data) != "deadly" || l.Attempts != most || !strings.Contains(l.Err, "did not end") {
				t.Errorf("dead letters %+v", letters)
			}
		})
	}
}

// TestAttemptsOutliveOwners: a message fails at one owner, and then at the next ones, to which
// its slot is handed. All attempts count.
func TestAttemptsOutliveOwners(t *testing.T) {
	t.Parallel()
	for name, tries := range map[string]int{"in the retry queue": 1, "at the head of its slot": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 6
			g := startGroup(t, oneServer(t), 0, withDeadLetters, func(c *partition.Config) {
				c.Slots, c.Retry.Tries, c.Retry.Attempts = 1, tries, most
			})
			handle := partition.Open(g.pub.Conn(), g.cfg.Name)
			var mu sync.Mutex
			var attempts []int
			failing := partition.HandlerFunc(func(_ context.Context, m partition.Message) error {
				mu.Lock()
				defer mu.Unlock()
				attempts = append(attempts, m.Attempt)
				return errors.New("it fails")
			})
			tried := func(n int) func() bool {
				return func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(attempts) >= n
				}
			}
			worker := g.startWith("w0", failing)
			await.That(t, "one worker settled", g.settled(worker))
			if _, err := g.pub.Publish(t.Context(), strings.Replace(g.cfg.Subject, "*.*", "a.b", 1), []byte("x")); err != nil {
				t.Fatal(err)
			}
			for n := range most - 1 {
				await.That(t, fmt.Sprintf("%d attempts", n+1), tried(n+1))
				next := g.startWith(fmt.Sprint("w", n+1), failing)
				worker.stop()
				await.That(t, "the next owner settled", g.settled(next))
				worker = next
			}
			await.That(t, "a dead letter", func() bool {
				letters, err := handle.DeadLetters(t.Context(), 0, 100)
				if err != nil {
					t.Fatal(err)
				}
				return len(letters) == 1 && letters[0].Attempts == most
			})
			mu.Lock()
			defer mu.Unlock()
			for i, attempt := range attempts {
				if attempt != i+1 || len(attempts) != most {
					t.Errorf("attempts %v, want 1 to %d", attempts, most)
					break
				}
			}
			await.That(t, "no record of attempts is left but the last message of the retry stream", func() bool {
				s, err := g.pub.Stream(t.Context(), g.cfg.Stream+"-retry")
				if err != nil {
					t.Fatal(err)
				}
				info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("muster."+g.cfg.Name+".retry.*.attempts.>"))
				if err != nil {
					t.Fatal(err)
				}
				return len(info.State.Subjects) <= 1
			})
		})
	}
}

// TestABrokenRecordOfAttempts: what somebody else has written where a record of attempts belongs
// counts for no message, and keeps none waiting.
func TestABrokenRecordOfAttempts(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]string{"no JSON": "nonsense", "a negative number": `{"attempts":-1}`, "another kind": `{"slots":1,"slot":0}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLetterRig(t, oneServer(t), func(partition.Message) error { return errors.New("it fails") },
				func(c *partition.Config) { c.Slots = 1 })
			subject := "muster." + r.cfg.Name + ".retry.0.attempts"
			for _, n := range []int{1, 2, 4, 8} { // the numbers of slots that there may be
				subject += fmt.Sprint(".", partition.SlotOf(n, "a", "b"))
			}
			if _, err := r.pub.Publish(t.Context(), subject+".a.b", []byte(record)); err != nil {
				t.Fatal(err)
			}
			next := r.startWith("w1", partition.HandlerFunc(func(context.Context, partition.Message) error { return errors.New("it fails") }))
			await.That(t, "two workers settled", func() bool { return next.Status().State == state.Stable })
			if _, err := r.pub.Publish(t.Context(), strings.Replace(r.cfg.Subject, "*.*", "a.b", 1), []byte("x")); err != nil {
				t.Fatal(err)
			}
			if letter := r.awaitLetters(1)[0]; letter.Attempts != 3 {
				t.Errorf("the message was given up after %d attempts, want 3", letter.Attempts)
			}
		})
	}
}
