package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// called is the evidence of a run in which q takes the slot of p over: p serves a call and a message
// of chamber a, is stopped past its lease in a call of b, and q serves a call of both, and is
// stopped within its lease. The other two calls are refused.
func called() evidence {
	p, q := Server{"p", 1, 7}, Server{"q", 2, 8}
	call := func(number uint64, key string, due, ended int, o CallOutcome, by Server) Call {
		return Call{Number: number, Key: key, Slot: 3, Due: at(due), Ended: at(ended), Outcome: o, By: by}
	}
	serves := func(by Server, number uint64, key string, from, to int) run {
		return run{record: by.Record, version: by.Version, claim: by.Claim, call: number, key: key, slot: 3, start: at(from), end: at(to), ok: true}
	}
	e := evidence{freezes: []Freeze{{Record: "p", Claim: 7, Stopped: at(2_000), Resumed: at(9_000), Replaced: true},
		{Record: "q", Claim: 8, Stopped: at(8_050), Resumed: at(8_060)}}}
	e.calls = []Call{
		call(1, "t:a", 9, 12, CallAnswered, p),
		call(2, "t:b", 1_990, 9_005, CallUncertain, Server{}),
		call(3, "t:a", 3_000, 5_000, CallNoOwner, Server{}),
		call(4, "t:b", 7_900, 8_002, CallAnswered, q),
		call(5, "t:a", 8_100, 8_101, CallRejected, Server{}),
		call(6, "t:a", 8_200, 8_204, CallAnswered, q),
		call(7, "t:a", 8_300, 8_450, CallAnswered, q),
	}
	message := serves(p, 0, "t:a", 20, 40)
	later := serves(q, 0, "t:a", 8_295, 8_400)
	message.seq, later.seq = 1, 2
	e.runs = []run{message, later}
	e.served = []run{serves(p, 1, "t:a", 10, 11), serves(p, 2, "t:b", 1_991, 9_001), serves(q, 4, "t:b", 8_000, 8_001),
		serves(q, 6, "t:a", 8_202, 8_203), serves(q, 7, "t:a", 8_401, 8_449)}
	e.calls[6].Work, e.served[1].ok = 48*time.Millisecond, false
	return e
}

func TestFaultlessCalls(t *testing.T) {
	t.Parallel()
	a := accountCalls(called())
	if !a.Clean() {
		t.Errorf("faults: %s", strings.Join(a.Faults, "; "))
	}
	if a.Made != 7 || a.Answered != 4 || a.NoOwner != 1 || a.Rejected != 1 || a.Uncertain != 1 || a.Served != 5 || a.Waited != 1 {
		t.Errorf("%+v", a)
	}
	if a.Moving != 3 || a.MovingRefused != 1 || a.MovingUncertain != 1 {
		t.Errorf("while the slot moved: %+v", a)
	}
	if got, want := fmt.Sprint(a.Took), "[3ms 102ms 4ms 102ms]"; got != want {
		t.Errorf("took %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(a.Quiet), "[3ms 4ms]"; got != want {
		t.Errorf("of them quiet %s, want %s", got, want)
	}
}

// TestEveryFaultOfCallsIsFound breaks one thing at a time, and wants the count of it, and only that
// one, to say so.
func TestEveryFaultOfCallsIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		spoil func(*evidence)
		count func(CallAccount) int
	}{
		{"a call of a former owner after its successor's call", func(e *evidence) {
			e.served[3].record, e.served[3].version, e.served[3].claim = "o", 1, 6
			e.calls[5].By = e.served[3].server()
		}, func(a CallAccount) int { return a.WithoutLease }},
		{"a call of a former owner after its successor's message of another key of the slot", func(e *evidence) {
			e.runs = append(e.runs, run{record: "q", version: 2, claim: 8, key: "t:c", slot: 3, start: at(5), end: at(6)})
		}, func(a CallAccount) int { return a.WithoutLease }},
		{"a call in a process that continues past its lease", func(e *evidence) {
			e.served[2].record, e.served[2].version, e.served[2].claim = "p", 1, 7
			e.served[2].start, e.served[2].end = at(9_002), at(9_003)
			e.calls[3].By, e.served, e.calls, e.runs = e.served[2].server(), e.served[:3], e.calls[:5], e.runs[:1]
		}, func(a CallAccount) int { return a.WithoutLease }},
		{"a call beside a message", func(e *evidence) { e.served[4].start = at(8_399) }, func(a CallAccount) int { return a.Concurrent }},
		{"a message beside a call", func(e *evidence) { e.served[0].end = at(30) }, func(a CallAccount) int { return a.Concurrent }},
		{"a message of another process beside a call", func(e *evidence) { e.runs[1].start, e.runs[1].record = at(8_202), "r" }, func(a CallAccount) int { return a.Concurrent }},
		{"a call beside a call", func(e *evidence) { e.served[3].end = at(8_402); e.runs = e.runs[:1] }, func(a CallAccount) int { return a.Concurrent }},
		{"a call of a process that was stopped within its lease", func(e *evidence) { e.freezes[0].Replaced = false }, func(a CallAccount) int { return a.Concurrent }},
		{"a call twice", func(e *evidence) {
			again := e.served[3]
			again.start, again.end = at(8_210), at(8_211)
			e.served = append(e.served, again)
		}, func(a CallAccount) int { return a.ServedTwice }},
		{"a failed call twice", func(e *evidence) {
			again := e.served[2]
			again.start, again.end, again.call = at(8_010), at(8_011), 2
			e.served = append(e.served, again)
		}, func(a CallAccount) int { return a.ServedTwice }},
		{"a call without an owner, served", func(e *evidence) { e.calls[5].Outcome, e.calls[5].By = CallNoOwner, Server{} }, func(a CallAccount) int { return a.ServedRefused }},
		{"a rejected call, served", func(e *evidence) { e.calls[5].Outcome, e.calls[5].By = CallRejected, Server{} }, func(a CallAccount) int { return a.ServedRefused }},
		{"an answer without a record", func(e *evidence) { e.served = e.served[:4] }, func(a CallAccount) int { return a.Misanswered }},
		{"an answer of another process", func(e *evidence) { e.calls[5].By.Record = "p" }, func(a CallAccount) int { return a.Misanswered }},
		{"an answer under another fence", func(e *evidence) { e.calls[5].By.Version = 1 }, func(a CallAccount) int { return a.Misanswered }},
		{"an answer of a handler that failed", func(e *evidence) { e.served[3].ok = false }, func(a CallAccount) int { return a.Misanswered }},
		{"a call that was never made", func(e *evidence) { e.served[1].call = 99 }, func(a CallAccount) int { return a.Unasked }},
		{"a call of another key", func(e *evidence) { e.served[3].key = "t:d" }, func(a CallAccount) int { return a.Unasked }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			e := called()
			c.spoil(&e)
			a := accountCalls(e)
			sum := a.WithoutLease + a.Concurrent + a.ServedTwice + a.ServedRefused + a.Misanswered + a.Unasked
			if n := c.count(a); n == 0 || n != sum || a.Clean() {
				t.Errorf("not found, or not alone: %s", strings.Join(a.Faults, "; "))
			}
		})
	}
}

// TestACallRefusedDuringAHandoffIsOfAMovingSlot: the owner ends its last message after the caller has
// given up.
func TestACallRefusedDuringAHandoffIsOfAMovingSlot(t *testing.T) {
	t.Parallel()
	e := called()
	e.calls[2].Due, e.calls[2].Ended = at(1_992), at(1_995)
	if a := accountCalls(e); a.MovingRefused != 1 {
		t.Errorf("%+v", a)
	}
}

// TestAKilledProcessServesNothingMore: a call that its process was killed in is over with it.
func TestAKilledProcessServesNothingMore(t *testing.T) {
	t.Parallel()
	e := called()
	e.freezes, e.served[1].end = nil, time.Time{}
	if a := accountCalls(e); a.Concurrent == 0 {
		t.Error("of one that lives, the call is still served")
	}
	e.deaths = map[string]time.Time{"p": at(2_500)}
	if a := accountCalls(e); !a.Clean() {
		t.Errorf("faults: %s", strings.Join(a.Faults, "; "))
	}
}

func TestCallsAreReadFromTheRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "pod-0")
	text := fmt.Sprintf("c %d w-0 1 t:c 5 false 2 9\nd %d w-0 1 t:c 5 true 2 9\ns %d w-0 1 t:c 5 false false 0 one 2 9\ne %d w-0 1 t:c 5 true true 0 one 2 9\nc %d w-",
		at(1).UnixNano(), at(2).UnixNano(), at(3).UnixNano(), at(4).UnixNano(), at(5).UnixNano())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	call := Call{Number: 1, Key: "t:c", Slot: 5, Due: at(0), Ended: at(3), Outcome: CallAnswered, By: Server{path, 2, 9}}
	a, err := AccountCalls(dir, []Call{call}, nil, nil)
	if err != nil || !a.Clean() || a.Served != 1 || a.Answered != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	runs, served, err := readRecord(path)
	if err != nil || len(runs) != 1 || len(served) != 1 {
		t.Fatalf("%+v, %+v, %v", runs, served, err)
	}
	if r := runs[0]; r.slot != 5 || r.version != 2 || r.claim != 9 || r.context != "one" || !r.ok || !r.end.Equal(at(4)) {
		t.Errorf("%+v", r)
	}
}
