package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	// gatherTime is the most that a woken tick waits for more pods: those of one Deployment become unschedulable one after the other, and
	// they are packed better together.
	gatherTime = 500 * time.Millisecond
	// gatherStep is how finely wake-ups are told apart.
	gatherStep = gatherTime / 2
	// wakeGap is the least time between the starts of a tick and of a woken one.
	wakeGap = time.Second
	// mostRest is the most that a woken tick leaves after the end of the last. It leaves half of what that took, so that a stream of pods
	// doesn't have a large cluster read all the time; a tick that took long because it drained is no reason to wait longer.
	mostRest = 5 * time.Second
)

// alarm is when ticks are to begin before their time, because pods will have waited for PENDING_UP_SEC. The zero value has none.
type alarm struct {
	mu      sync.Mutex
	times   map[time.Time]bool // in steps, so that many pods take one place
	changed chan struct{}      // has one element if a time was added; a nudge for who sleeps, times is what counts
}

func newAlarm() *alarm { return &alarm{times: map[time.Time]bool{}, changed: make(chan struct{}, 1)} }

// set asks for a tick at a time, or a moment later.
func (a *alarm) set(at time.Time) {
	at = at.Round(0).Truncate(gatherStep).Add(gatherTime)
	a.mu.Lock()
	a.times[at] = true
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// first returns the earliest time that is asked for, false if none is.
func (a *alarm) first() (first time.Time, set bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.times {
		if !set || at.Before(first) {
			first, set = at, true
		}
	}
	return first, set
}

// pass drops the times that a tick which begins now serves: it reads the pods after that.
func (a *alarm) pass(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.times {
		if !at.After(now) {
			delete(a.times, at)
		}
	}
}

// wait sleeps until the next tick of the schedule or, if it is earlier, a woken one; began and ended are those of the last tick.
func (d *Daemon) wait(ctx context.Context, next, began, ended time.Time) {
	earliest := later(began.Add(wakeGap), ended.Add(min(ended.Sub(began)/2, mostRest)))
	for ctx.Err() == nil {
		at := next
		if due, set := d.alarm.first(); set {
			at = earlier(at, later(due, earliest))
		}
		left := at.Sub(d.clock.Now())
		if left <= 0 {
			return
		}
		d.sleep(ctx, left)
	}
}

// sleep waits, until the alarm is set at the latest. The goroutine has ended when it returns: one that outlived it could take the nudge
// that is meant for the next sleep.
func (d *Daemon) sleep(ctx context.Context, left time.Duration) {
	ctx, wake := context.WithCancel(ctx)
	var listening sync.WaitGroup
	if d.o.Watch != nil {
		listening.Go(func() {
			select {
			case <-d.alarm.changed:
				wake()
			case <-ctx.Done():
			}
		})
	}
	_ = d.clock.Sleep(ctx, left) // its error is ctx's
	wake()
	listening.Wait()
}

// watch sets the alarm for every pod that becomes unschedulable, for as long as ctx lasts. While the cluster can't be watched the schedule
// is what ticks go by.
func (d *Daemon) watch(ctx context.Context) {
	found := func(since time.Time) {
		now := d.clock.Now()
		d.alarm.set(later(earlier(since, now).Add(d.pendingFor), now)) // the server's clock may be ahead
	}
	for ctx.Err() == nil {
		pause := time.Second
		if err := d.o.Watch(ctx, found); err != nil && ctx.Err() == nil {
			d.Metrics.counts.failed("cluster.Watch")
			d.o.Log.Warn("watching pods failed; ticks go by the schedule meanwhile", "error", redacted(err))
			pause = 5 * time.Second
		}
		_ = d.clock.Sleep(ctx, pause)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
