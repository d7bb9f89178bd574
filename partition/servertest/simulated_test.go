package servertest_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// verdicts is a handler whose result depends on the key and on how often it was called for it. It
// notes the attempts.
type verdicts struct {
	mu       sync.Mutex
	attempts map[string][]int
}

// verdictKeys are the keys that it knows.
var verdictKeys = []string{"v:fine", "v:fails-twice", "v:fails", "v:panics", "v:hopeless", "v:discarded", "v:unavailable", "v:fenced"}

func (v *verdicts) Handle(_ context.Context, m partition.Message) error {
	v.mu.Lock()
	v.attempts[m.Key] = append(v.attempts[m.Key], m.Attempt)
	calls := len(v.attempts[m.Key])
	v.mu.Unlock()

	failed := fmt.Errorf("call %d of %s failed", calls, m.Key)
	switch {
	case m.Key == "v:fails-twice" && calls <= 2, m.Key == "v:fails":
		return failed
	case m.Key == "v:panics":
		panic(failed)
	case m.Key == "v:hopeless":
		return partition.GiveUp(failed)
	case m.Key == "v:discarded":
		return partition.Discard(failed)
	case m.Key == "v:unavailable" && calls <= 4:
		return partition.Unavailable(failed)
	case m.Key == "v:fenced" && calls <= 2:
		return fmt.Errorf("%w: %w", partition.ErrFenced, failed)
	}
	return nil
}

func (v *verdicts) all() map[string][]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.attempts)
}

// lettersOf says of each dead letter what a simulated one must have, too.
func lettersOf(letters []partition.DeadLetter) (of []string) {
	for _, l := range letters {
		of = append(of, fmt.Sprintf("%s after %d attempts: %s; a stack: %t", l.Key, l.Attempts, l.Err, l.Stack != ""))
	}
	slices.Sort(of)
	return of
}

// TestSimulatedGroup: a handler sees the same attempts on a group of package partitiontest as on a
// real one, by what it returns, and the same messages become dead letters.
func TestSimulatedGroup(t *testing.T) {
	t.Parallel()
	simulated := verdicts{attempts: make(map[string][]int)}
	var simulatedLetters []string
	partitiontest.Run(t, partitiontest.Options{Attempts: 3}, func(string) partition.Handler { return &simulated }, func(_ *testing.T, g *partitiontest.Group) {
		for _, key := range verdictKeys {
			g.Publish(partition.Outgoing{Key: key})
		}
		g.Settle()
		simulatedLetters = lettersOf(g.DeadLetters())
	})

	r := startGroup(t, oneServer(t), 0, withDeadLetters)
	genuine := verdicts{attempts: make(map[string][]int)}
	w := r.startWith("w0", &genuine)
	await.That(t, "one worker settled", r.settled(w))
	publisher, err := partition.Open(r.pub.Conn(), r.cfg.Name).Publisher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range verdictKeys {
		if _, err := publisher.Publish(t.Context(), partition.Outgoing{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	same := func() error {
		if got := genuine.all(); !maps.EqualFunc(got, simulated.all(), slices.Equal[[]int]) {
			return fmt.Errorf("the attempts are %v, simulated %v", got, simulated.all())
		}
		if got := lettersOf(r.deadLetters()); !slices.Equal(got, simulatedLetters) {
			return fmt.Errorf("the dead letters are %q, simulated %q", got, simulatedLetters)
		}
		return nil
	}
	defer func() {
		if err := same(); err != nil {
			t.Log(err)
		}
	}()
	await.That(t, "the real group has done the same", func() bool { return same() == nil })
}

// diary is what the handlers of a group's workers are called for, of one slot. Workers are numbered in
// the order in which they have something to say.
type diary struct {
	mu      sync.Mutex
	key     string
	numbers map[string]int
	lines   []string
	stuck   bool // the next message is not handled before its context ends
}

func newDiary(key string) *diary { return &diary{key: key, numbers: make(map[string]int)} }

func (d *diary) note(worker, what string) {
	if d.numbers[worker] == 0 {
		d.numbers[worker] = len(d.numbers) + 1
	}
	d.lines = append(d.lines, fmt.Sprint("worker ", d.numbers[worker], " ", what))
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// stick lets the next message wait for the end of its worker.
func (d *diary) stick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = true
}

// diarist is the handler of one worker.
type diarist struct {
	*diary
	worker string
}

func (d diarist) saw(s partition.Slots, what string) {
	if !slices.Contains(s.Slots, partition.SlotOfKey(s.Of, d.key)) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(d.worker, what)
}

func (d diarist) Handle(ctx context.Context, m partition.Message) error {
	d.mu.Lock()
	stuck := d.stuck
	d.stuck = false
	d.note(d.worker, fmt.Sprintf("handles %s, attempt %d", m.Data, m.Attempt))
	d.mu.Unlock()
	if stuck {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (d diarist) Prepare(_ context.Context, s partition.Slots) error {
	d.saw(s, "prepares")
	return nil
}

func (d diarist) Released(s partition.Slots) { d.saw(s, "releases") }

func (d diarist) Export(_ context.Context, s partition.Slots) (io.Reader, error) {
	d.saw(s, "exports")
	return strings.NewReader("state"), nil
}

func (d diarist) Import(_ context.Context, s partition.Slots, r io.Reader) error {
	if _, err := io.ReadAll(r); err != nil {
		return err
	}
	d.saw(s, "imports")
	return nil
}

// TestSimulatedLife: a handler is called for the same things in the same order on a group of package
// partitiontest and on a real one, while a worker leaves, another is killed with a message in work,
// and a third takes over.
func TestSimulatedLife(t *testing.T) {
	t.Parallel()
	const key = "v:life"
	simulated := newDiary(key)
	started := 0
	handler := func(string) partition.Handler {
		started++
		return diarist{simulated, fmt.Sprint(started)}
	}
	partitiontest.Run(t, partitiontest.Options{Workers: 2, Slots: 4}, handler, func(_ *testing.T, g *partitiontest.Group) {
		publish := func(data string) { g.Publish(partition.Outgoing{Key: key, Data: []byte(data)}) }
		publish("1")
		g.Settle()
		g.Leave(g.Owner(key))
		publish("2")
		g.Settle()
		simulated.stick()
		publish("3")
		time.Sleep(time.Second)
		g.Kill(g.Owner(key))
		g.Join()
		g.Settle()
	})

	r := startGroup(t, oneServer(t), 0, withDeadLetters)
	genuine := newDiary(key)
	start := func(name string) *runningWorker { return r.startWith(name, diarist{genuine, name}) }
	r.expect(2)
	workers := map[string]*runningWorker{"w0": start("w0"), "w1": start("w1")}
	await.That(t, "two workers settled", r.settled(workers["w0"], workers["w1"]))
	publisher, err := partition.Open(r.pub.Conn(), r.cfg.Name).Publisher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	publish := func(data string) {
		if _, err := publisher.Publish(t.Context(), partition.Outgoing{Key: key, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		await.That(t, data+" is handled", func() bool {
			return slices.ContainsFunc(genuine.all(), func(line string) bool { return strings.Contains(line, "handles "+data) })
		})
	}
	publish("1")
	leaves, stays := "w0", "w1"
	if genuine.numbers["w1"] == 1 {
		leaves, stays = stays, leaves
	}
	workers[leaves].stop()
	r.expect(1)
	await.That(t, "one worker settled", r.settled(workers[stays]))
	publish("2")
	genuine.stick()
	publish("3")
	workers[stays].nc.Close() // as a kill does
	third := start("w2")
	await.That(t, "the third worker settled", r.settled(third))
	await.That(t, "the real handlers were called for the same", func() bool { return len(genuine.all()) >= len(simulated.all()) })
	if got := genuine.all(); !slices.Equal(got, simulated.all()) {
		t.Errorf("the real handlers were called so:\n%s\nand the simulated ones:\n%s", strings.Join(got, "\n"), strings.Join(simulated.all(), "\n"))
	}
}
