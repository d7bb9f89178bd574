package partition

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// mapRefresh is the shortest time between two reads of the map by a follower whose watch may have
// stopped.
const mapRefresh = 250 * time.Millisecond

// mapFollower has the latest assignment map of a group.
type mapFollower struct {
	kv     jetstream.KeyValue
	tell   func(*record.Assignment) // of each map; must not block
	stop   context.CancelFunc
	poked  chan struct{} // holds one request to read the map
	synced chan struct{} // closed when it is known whether there is a map

	mu       sync.Mutex
	current  *record.Assignment
	revision uint64
	changed  chan struct{} // closed when another map is there
}

// followMap follows the map until close. ctx bounds the beginning.
func followMap(ctx context.Context, nc *nats.Conn, group string, tell func(*record.Assignment)) (*mapFollower, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	f := &mapFollower{kv: kv, tell: tell, stop: stop, poked: make(chan struct{}, 1), synced: make(chan struct{}), changed: make(chan struct{})}
	watch, err := kv.Watch(life, record.AssignmentKey)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching the assignment map of %s: %w", group, err)
	}

	go f.run(life, watch)
	select {
	case <-f.synced:
		return f, nil
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("reading the assignment map of %s: %w", group, ctx.Err())
	}
}

func (f *mapFollower) close() { f.stop() }

// latest returns the map, nil if there is none, and a channel that is closed when there is another.
func (f *mapFollower) latest() (*record.Assignment, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.changed
}

// newer waits until there is another map, and reports whether there is one before ctx ends.
func (f *mapFollower) newer(ctx context.Context, changed <-chan struct{}) bool {
	f.poke()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// run takes in what a watch brings, until life ends. A watch stops for good when its bucket is
// created again, so the map is also read when a call needs a newer one.
func (f *mapFollower) run(life context.Context, watch jetstream.KeyWatcher) {
	defer func() { _ = watch.Stop() }()
	var synced sync.Once
	updates := watch.Updates()
	read := time.Time{}
	for {
		select {
		case e, open := <-updates:
			switch {
			case !open:
				updates = nil
			case e == nil:
				synced.Do(func() { close(f.synced) })
			default:
				f.take(e)
			}
		case <-f.poked:
			if time.Since(read) >= mapRefresh {
				f.read(life)
				read = time.Now()
				break
			}
			time.AfterFunc(mapRefresh-time.Since(read), f.poke)
		case <-life.Done():
			return
		}
	}
}

func (f *mapFollower) poke() {
	select {
	case f.poked <- struct{}{}:
	default:
	}
}

func (f *mapFollower) read(life context.Context) {
	ctx, cancel := context.WithTimeout(life, apiTimeout)
	defer cancel()
	if e, err := f.kv.Get(ctx, record.AssignmentKey); err == nil {
		f.take(e)
	}
}

// take takes in a value of the map's key. One that is malformed is left out: the leader restores
// the one before.
func (f *mapFollower) take(e jetstream.KeyValueEntry) {
	if e.Operation() != jetstream.KeyValuePut {
		return
	}
	a, err := record.DecodeAssignment(e.Value())
	if err != nil {
		return
	}
	f.mu.Lock()
	if e.Revision() <= f.revision {
		f.mu.Unlock()
		return
	}
	f.current, f.revision = a, e.Revision()
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	f.tell(a)
}
