package handoff

import (
	"testing"
	"time"
)

// at makes a run of a key's n-th message by a worker, in milliseconds; an end of
// 0 is none.
func at(worker, key, n, start, end int) run {
	var zero time.Time
	moment := func(ms int) time.Time { return zero.Add(time.Hour + time.Duration(ms)*time.Millisecond) }
	r := run{message: message{key, n}, worker: worker, unit: key, start: moment(start), arrived: moment(start - 1)}
	if end > 0 {
		r.end, r.done = moment(end), true
	}
	return r
}

func TestEveryFaultIsFound(t *testing.T) {
	givenUp := at(0, 1, 1, 6, 8)
	givenUp.done = false
	published := []message{{1, 0}, {1, 1}, {1, 2}, {2, 0}}
	for _, tt := range []struct {
		name string
		runs []run
		want Findings
	}{
		{"none", []run{at(0, 1, 0, 1, 5), at(0, 1, 1, 6, 9), at(1, 1, 2, 9, 10), at(1, 2, 0, 1, 3)}, Findings{Published: 4}},
		{"lost", []run{at(0, 1, 0, 1, 5), at(0, 1, 1, 6, 9), at(1, 1, 2, 10, 11)}, Findings{Published: 4, Lost: 1}},
		{"begun and not done", []run{at(0, 1, 0, 1, 5), at(0, 1, 1, 6, 9), at(1, 1, 2, 10, 0), at(1, 2, 0, 1, 3)}, Findings{Published: 4, Lost: 1}},
		{"given up and done by another", []run{at(0, 1, 0, 1, 5), givenUp, at(1, 1, 1, 8, 9), at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)}, Findings{Published: 4}},
		{"given up", []run{at(0, 1, 0, 1, 5), givenUp, at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)}, Findings{Published: 4, Lost: 1, OutOfOrder: 1}},
		{"twice", []run{at(0, 1, 0, 1, 5), at(1, 1, 0, 5, 6), at(0, 1, 1, 6, 9), at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)}, Findings{Published: 4, Duplicates: 1}},
		{"at the same time, out of order", []run{at(0, 1, 0, 1, 5), at(1, 1, 1, 4, 9), at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)},
			Findings{Published: 4, Concurrent: 1, OutOfOrder: 1}},
		{"the later one first", []run{at(0, 1, 1, 1, 5), at(1, 1, 0, 6, 9), at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)}, Findings{Published: 4, OutOfOrder: 1}},
		{"while one never ends", []run{at(0, 1, 0, 1, 5), at(0, 1, 1, 6, 0), at(1, 1, 2, 10, 11), at(1, 2, 0, 1, 3)},
			Findings{Published: 4, Lost: 1, Concurrent: 1, OutOfOrder: 1}},
	} {
		if got := examine(published, tt.runs); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestThePauseIsFromTheLaterOfCompletionAndArrival(t *testing.T) {
	since := at(0, 0, 0, 3, 0).start
	late := at(1, 3, 1, 50, 60)
	late.arrived = at(0, 0, 0, 45, 0).start
	runs := []run{
		at(0, 1, 0, 1, 5), at(1, 1, 1, 25, 30), // the message came 1 ms before its start: that counts
		at(0, 2, 0, 1, 5), at(0, 2, 1, 25, 30), // has not moved
		at(0, 3, 0, 1, 10), late, // came 5 ms before
		at(0, 4, 0, 1, 30), at(1, 4, 1, 20, 30), // before the former had ended
		at(0, 5, 0, 1, 2), at(1, 5, 1, 2, 3), // before the change
	}
	waiting := at(1, 6, 1, 40, 50) // waited for the former's end
	waiting.arrived = since
	runs = append(runs, at(0, 6, 0, 1, 20), waiting)
	got := spread(pauses(runs, since))
	want := Spread{N: 4, P50: time.Millisecond, P99: 20 * time.Millisecond, Max: 20 * time.Millisecond}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestATakeoverIsFromTheLaterOfCrashAndArrival(t *testing.T) {
	crash := at(0, 0, 0, 10, 0).start
	crashed := func(worker int) bool { return worker == 0 }
	late := at(1, 2, 1, 60, 70)
	late.arrived = at(0, 0, 0, 55, 0).start
	waiting := at(1, 1, 1, 40, 50)
	waiting.arrived = at(0, 0, 0, 2, 0).start
	runs := []run{
		at(0, 1, 0, 1, 5), waiting, // has waited since before the crash
		at(0, 2, 0, 1, 5), late, // came after it
		at(1, 3, 0, 1, 5), at(2, 3, 1, 20, 30), // was not the crashed worker's any more
		at(0, 4, 0, 1, 5), // was not taken over, as nothing came
	}
	got := spread(takeovers(runs, crash, crashed))
	want := Spread{N: 2, P50: 5 * time.Millisecond, P99: 30 * time.Millisecond, Max: 30 * time.Millisecond}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestACrashedWorkerEndsNothing(t *testing.T) {
	l := newLedger()
	first, second := message{1, 0}, message{1, 1}
	l.publishes(first, second)
	l.report(run{message: first, worker: 3, end: time.Now(), done: true})
	l.crash(3)
	l.report(run{message: second, worker: 3, end: time.Now(), done: true})
	if err := l.handle(t.Context(), 3, 0, second.encode(), time.Now()); err == nil {
		t.Error("a crashed worker handles a message")
	}
	left, err := l.settled(t.Context(), 10*time.Millisecond)
	if left != 1 || err != nil {
		t.Errorf("%d messages are left (%v)", left, err)
	}
	if _, runs := l.record(); len(runs) != 1 {
		t.Errorf("its runs are %+v", runs)
	}
}
