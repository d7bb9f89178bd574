package handoff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tokens returns the two subject tokens of a key.
func tokens(key int) (tool, chamber string) {
	return fmt.Sprintf("tool%03d", key/4+1), fmt.Sprintf("chamber%d", key%4+1)
}

func subjectOf(key int) string {
	tool, chamber := tokens(key)
	return "dc." + tool + "." + chamber + ".completion"
}

func (m message) encode() []byte { return []byte(strconv.Itoa(m.key) + " " + strconv.Itoa(m.n)) }

func decode(data []byte) (message, error) {
	var m message
	key, n, found := strings.Cut(string(data), " ")
	var errs [2]error
	m.key, errs[0] = strconv.Atoi(key)
	m.n, errs[1] = strconv.Atoi(n)
	if err := errors.Join(errs[:]...); err != nil || !found {
		return m, fmt.Errorf("%.40q is not a message of this run", data)
	}
	return m, nil
}

// ledger knows what was published and every call of the handlers.
type ledger struct {
	least, spread atomic.Int64 // ns that a handler takes: least, and up to spread more
	delivered     atomic.Int64 // messages that a broker has handed to a worker

	mu        sync.Mutex
	gate      chan struct{} // handlers wait for its end; nil: for nothing
	published []message
	runs      []run
	pending   map[message]struct{} // published and never processed to the end
	progress  time.Time            // when that last became less
	faults    []error
}

func newLedger() *ledger { return &ledger{pending: map[message]struct{}{}, progress: time.Now()} }

// publishes notes a message that is about to be published.
func (l *ledger) publishes(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published = append(l.published, m)
	l.pending[m] = struct{}{}
}

func (l *ledger) fault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, err)
}

// handle is every contender's handler. Where it returns an error its message was
// not processed to the end.
func (l *ledger) handle(ctx context.Context, worker, unit int, data []byte, arrived time.Time) error {
	m, err := decode(data)
	if err != nil {
		l.fault(err)
		return nil
	}
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	i := len(l.runs)
	l.runs = append(l.runs, run{message: m, worker: worker, unit: unit, arrived: arrived, start: time.Now()})
	l.mu.Unlock()
	err = l.work(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[i].end, l.runs[i].done = time.Now(), err == nil
	if _, first := l.pending[m]; first && err == nil {
		delete(l.pending, m)
		l.progress = l.runs[i].end
	}
	return err
}

// work takes the time that a handler takes.
func (l *ledger) work(ctx context.Context) error {
	d := l.least.Load()
	if d == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(d + rand.Int64N(l.spread.Load()+1)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close makes handlers wait until the function that it returns is called.
func (l *ledger) close() (open func()) {
	gate := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = gate
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gate, l.progress = nil, time.Now()
		close(gate)
	}
}

// settled waits until everything that was published is processed, or nothing
// more has been for as long as quiet; it returns how much is left.
func (l *ledger) settled(ctx context.Context, quiet time.Duration) (int, error) {
	for began := time.Now(); ; {
		l.mu.Lock()
		left, idle, fault := len(l.pending), time.Since(l.progress), errors.Join(l.faults...)
		l.mu.Unlock()
		if left == 0 || fault != nil || idle > quiet && time.Since(began) > quiet {
			return left, fault
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// record returns what there is so far.
func (l *ledger) record() ([]message, []run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]message(nil), l.published...), append([]run(nil), l.runs...)
}

// abandon forgets what was not processed.
func (l *ledger) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.pending)
}

// lanes is how many messages are published at a time. A key is always in the
// same lane, so its messages are published in order, each when the one before is
// stored.
const lanes = 16

// publishPatience is for how long a message is tried to be published.
const publishPatience = 20 * time.Second

// publisher publishes for keys that are named, and in the background.
type publisher struct {
	ledger  *ledger
	keys    int
	send    func(ctx context.Context, m message) error
	lane    [lanes]chan int
	waiting sync.WaitGroup // of what is queued
	done    chan struct{}
	all     sync.WaitGroup
}

func newPublisher(l *ledger, keys int, send func(context.Context, message) error) *publisher {
	p := &publisher{ledger: l, keys: keys, send: send, done: make(chan struct{})}
	next := make([]int, keys)
	for i := range p.lane {
		p.lane[i] = make(chan int, 1<<16)
		p.all.Go(func() {
			for {
				select {
				case <-p.done:
					return
				case key := <-p.lane[i]:
					p.publishNow(message{key, next[key]})
					next[key]++
					p.waiting.Done()
				}
			}
		})
	}
	return p
}

func (p *publisher) publish(keys ...int) {
	for _, key := range keys {
		p.waiting.Add(1)
		p.lane[key%lanes] <- key
	}
}

func (p *publisher) every() []int {
	keys := make([]int, p.keys)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

func (p *publisher) publishNow(m message) {
	p.ledger.publishes(m)
	for began := time.Now(); ; {
		ctx, cancel := context.WithTimeout(context.Background(), publishPatience)
		err := p.send(ctx, m)
		cancel()
		if err == nil {
			return
		}
		if time.Since(began) > publishPatience {
			p.ledger.fault(fmt.Errorf("publishing message %d of key %d: %w", m.n, m.key, err))
			return
		}
		select {
		case <-p.done:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// at publishes for one key after another, at this rate per second in all,
// until the function that it returns is called.
func (p *publisher) at(rate int, keys []int) (stop func()) {
	if rate <= 0 || len(keys) == 0 {
		return func() {}
	}
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var owed float64
		last, next := time.Now(), 0
		for {
			select {
			case <-end:
				return
			case now := <-tick.C:
				owed += now.Sub(last).Seconds() * float64(rate)
				last = now
			}
			for ; owed >= 1; owed-- {
				p.publish(keys[next%len(keys)])
				next++
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		ended.Wait()
	})
}

// flush waits until what was queued is published, or ctx ends.
func (p *publisher) flush(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.waiting.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *publisher) stop() {
	close(p.done)
	p.all.Wait()
}
