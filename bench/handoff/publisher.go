package handoff

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lanes is how many messages are published at a time. A key is always in the
// same lane, so its messages are published in order, each when the one before is
// stored.
const lanes = 16

// publishPatience is for how long a message is tried to be published.
const publishPatience = 20 * time.Second

// publisher publishes for keys that are named, and in the background.
type publisher struct {
	ledger *ledger
	keys   int
	send   func(ctx context.Context, m message) error
	lane   [lanes]chan queued
	mu     sync.Mutex
	next   []int // number of each key's next message
	done   chan struct{}
	all    sync.WaitGroup
}

// queued is what waits in a lane: a key whose next message is to be published, or who waits
// for what is before it.
type queued struct {
	key    int
	passed func() // called when it is its turn; nil for a key
}

func newPublisher(l *ledger, keys int, send func(context.Context, message) error) *publisher {
	p := &publisher{ledger: l, keys: keys, next: make([]int, keys), send: send, done: make(chan struct{})}
	for i := range p.lane {
		p.lane[i] = make(chan queued, 1<<16)
		p.all.Go(func() {
			for {
				select {
				case <-p.done:
					return
				case q := <-p.lane[i]:
					if q.passed != nil {
						q.passed()
						continue
					}
					p.publishNow(p.another(q.key))
				}
			}
		})
	}
	return p
}

// another returns the next message of a key.
func (p *publisher) another(key int) message {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := message{key, p.next[key]}
	p.next[key]++
	return m
}

// take returns n messages, evenly over the keys, that the caller publishes. Nothing else
// may be published meanwhile.
func (p *publisher) take(n int) []message {
	ms := make([]message, n)
	for i := range ms {
		ms[i] = p.another(i % p.keys)
	}
	p.ledger.publishes(ms...)
	return ms
}

func (p *publisher) publish(keys ...int) {
	for _, key := range keys {
		p.lane[key%lanes] <- queued{key: key}
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

// mostQueued is how much of a steady load waits in a lane. A machine that cannot publish at the
// rate gets less, rather than a queue that outlasts the measurement.
const mostQueued = 200

// at publishes for one key after another, at this rate per second in all, as far as the machine
// can, until the function that it returns is called.
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
				key := keys[next%len(keys)]
				next++
				if len(p.lane[key%lanes]) < mostQueued {
					p.publish(key)
				}
			}
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		ended.Wait()
	})
}

// flush waits until what is queued by now is published, or ctx ends. What is queued meanwhile
// is not waited for: under a load that goes on there may always be something.
func (p *publisher) flush(ctx context.Context) error {
	var before sync.WaitGroup
	before.Add(lanes)
	go func() {
		for _, lane := range p.lane {
			select {
			case lane <- queued{passed: before.Done}:
			case <-p.done:
				return
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		before.Wait()
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
