package handoff

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// mostWorkers is how many workers a run can have.
const mostWorkers = 128

var errCrashed = errors.New("the worker has crashed")

// ledger knows what was published and every call of the handlers. It is part of
// what is measured, so handlers of different workers share no lock: each worker has
// a log, and who waits for the end reads all of them when enough has been done.
type ledger struct {
	least, spread atomic.Int64                  // ns that a handler takes: least, and up to spread more
	slow          atomic.Pointer[slowKeys]      // keys whose handler takes another time; nil: none
	delivered     atomic.Int64                  // messages that a broker has handed to a worker
	gate          atomic.Pointer[chan struct{}] // handlers wait until it is closed; nil: for nothing
	unread        atomic.Int64                  // calls that were completed since the logs were read
	progress      atomic.Int64                  // when the last call was completed, in Unix ns
	logs          [mostWorkers]workerLog

	mu        sync.Mutex
	published []message
	pending   map[message]struct{} // published and, as far as the logs were read, not processed
	faults    []error
}

// workerLog has the calls of one worker's handler.
type workerLog struct {
	crashed chan struct{} // closed by a crash

	mu   sync.Mutex
	runs []run
	done []message // processed since the log was read
}

func newLedger() *ledger {
	l := &ledger{pending: map[message]struct{}{}}
	l.progress.Store(time.Now().UnixNano())
	for i := range l.logs {
		l.logs[i].crashed = make(chan struct{})
	}
	return l
}

// publishes notes messages that are about to be published.
func (l *ledger) publishes(ms ...message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published = append(l.published, ms...)
	for _, m := range ms {
		l.pending[m] = struct{}{}
	}
}

// mostFaults is how many faults are kept: one tends to bring about many.
const mostFaults = 10

// fault fails the run.
func (l *ledger) fault(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < mostFaults {
		l.faults = append(l.faults, err)
	}
}

// handle is the handler of every contender whose workers are in this process. Where
// it returns an error its message was not processed to the end.
func (l *ledger) handle(ctx context.Context, worker, unit int, data []byte, arrived time.Time) error {
	m, err := decode(data)
	if err != nil {
		l.fault(err)
		return nil
	}
	own := &l.logs[worker]
	if gate := l.gate.Load(); gate != nil {
		select {
		case <-*gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	r := run{message: m, worker: worker, unit: unit, arrived: arrived, start: time.Now()}
	i, err := own.begin(r)
	if err != nil {
		return err
	}
	err = l.work(ctx, m.key, own.crashed)
	end := time.Now()
	if own.end(i, end, err == nil) {
		l.completed(end, 1)
	}
	return err
}

// begin notes the begin of a call. A crashed worker begins nothing.
func (w *workerLog) begin(r run) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.crashed:
		return 0, errCrashed
	default:
	}
	w.runs = append(w.runs, r)
	return len(w.runs) - 1, nil
}

// end notes the end of a call, unless the crash of its worker did, and reports whether the
// message was processed.
func (w *workerLog) end(i int, at time.Time, done bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.runs[i].end.IsZero() {
		return false
	}
	w.runs[i].end, w.runs[i].done = at, done
	if done {
		w.done = append(w.done, w.runs[i].message)
	}
	return done
}

// completed notes when the latest of n calls was completed.
func (l *ledger) completed(at time.Time, n int) {
	l.unread.Add(int64(n))
	for {
		last := l.progress.Load()
		if at.UnixNano() <= last || l.progress.CompareAndSwap(last, at.UnixNano()) {
			return
		}
	}
}

// report adds a call of a handler in another process that has ended. What a crashed worker
// reports later is left out.
func (l *ledger) report(r run) {
	own := &l.logs[r.worker]
	i, err := own.begin(run{message: r.message, worker: r.worker, unit: r.unit, arrived: r.arrived, start: r.start})
	if err == nil && own.end(i, r.end, r.done) {
		l.completed(r.end, 1)
	}
}

// crash ends a worker's calls where they are.
func (l *ledger) crash(worker int) {
	own := &l.logs[worker]
	own.mu.Lock()
	defer own.mu.Unlock()
	close(own.crashed)
	for i := range own.runs {
		if own.runs[i].end.IsZero() {
			own.runs[i].end = time.Now()
		}
	}
}

// slowKeys are the handler times of some keys.
type slowKeys map[int]time.Duration

// takes returns how long the handler of a key's next message takes.
func (l *ledger) takes(key int) time.Duration {
	if slow := l.slow.Load(); slow != nil {
		if d, ok := (*slow)[key]; ok {
			return d
		}
	}
	d := l.least.Load()
	if d == 0 {
		return 0
	}
	return time.Duration(d + rand.Int64N(l.spread.Load()+1))
}

// work takes the time that the handler of a key takes.
func (l *ledger) work(ctx context.Context, key int, crashed <-chan struct{}) error {
	d := l.takes(key)
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-crashed:
		return errCrashed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close makes handlers wait until the function that it returns is called.
func (l *ledger) close() (open func()) {
	gate := make(chan struct{})
	l.gate.Store(&gate)
	return sync.OnceFunc(func() {
		l.gate.Store(nil)
		close(gate)
	})
}

// settled waits until everything that was published is processed, or nothing
// more has been for as long as quiet; it returns how much is left.
func (l *ledger) settled(ctx context.Context, quiet time.Duration) (int, error) {
	for began := time.Now(); ; {
		idle := time.Since(time.Unix(0, l.progress.Load()))
		patient := min(idle, time.Since(began)) <= quiet
		left, fault := l.left(!patient)
		if left == 0 || fault != nil || !patient {
			return left, fault
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// left returns how many messages wait to be processed, at most. It reads the logs where as
// many calls have been completed as messages wait, so that this may be the end, and where it
// must be exact.
func (l *ledger) left(exact bool) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if exact || int(l.unread.Load()) >= len(l.pending) {
		l.unread.Store(0)
		for i := range l.logs {
			own := &l.logs[i]
			own.mu.Lock()
			for _, m := range own.done {
				delete(l.pending, m)
			}
			own.done = own.done[:0]
			own.mu.Unlock()
		}
	}
	return len(l.pending), errors.Join(l.faults...)
}

// processed waits until no message that is published by now waits to be processed, or patience
// ends.
func (l *ledger) processed(ctx context.Context, patience time.Duration) error {
	l.mu.Lock()
	all := slices.Clone(l.published)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(all) > 0 {
		if _, err := l.left(true); err != nil {
			return err
		}
		l.mu.Lock()
		all = slices.DeleteFunc(all, func(m message) bool {
			_, waits := l.pending[m]
			return !waits
		})
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// record returns what there is so far.
func (l *ledger) record() (published []message, runs []run) {
	for i := range l.logs {
		own := &l.logs[i]
		own.mu.Lock()
		runs = append(runs, own.runs...)
		own.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]message(nil), l.published...), runs
}

// abandon no longer waits for what was not processed.
func (l *ledger) abandon() {
	_, _ = l.left(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.pending)
}
