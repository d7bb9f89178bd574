package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// at returns a moment of the made-up run, in milliseconds.
func at(ms int) time.Time { return time.Unix(1_000, 0).Add(time.Duration(ms) * time.Millisecond) }

// faultless is the evidence of a run in which two messages of chamber a and one
// of b are processed, a copy of a's first comes, and b has a poison one at last, which
// kills its handler twice, and another after its dead letter.
func faultless() evidence {
	message := func(seq uint64, key, context string) Published {
		return Published{Sequence: seq, Key: key, Context: context}
	}
	poison := message(5, "t:b", "poison1")
	poison.Poison = true
	all := []Published{message(1, "t:a", "one"), message(2, "t:b", "one"), message(3, "t:a", "two"), message(4, "t:a", "one"), poison, message(6, "t:b", "two")}
	e := evidence{published: slices.Clone(all[1:]), captured: all, last: []uint64{6}, dead: map[uint64][]time.Time{5: {at(801)}}, deaths: map[string]time.Time{"q": at(600), "r": at(700)}}
	e.effects = []effect{
		{kind: "stored", at: at(20), key: "t:a", context: "one", version: 1, claim: 7},
		{kind: "stored", at: at(25), key: "t:b", context: "one", version: 1, claim: 8},
		{kind: "stored", at: at(120), key: "t:a", context: "two", version: 2, claim: 8},
		{kind: "stored", at: at(815), key: "t:b", context: "two", version: 3, claim: 9},
	}
	done := func(record string, seq uint64, key string, from, to int) run {
		return run{record: record, seq: seq, key: key, start: at(from), end: at(to), ok: true}
	}
	e.runs = []run{done("p", 1, "t:a", 10, 21), done("q", 2, "t:b", 10, 26), done("q", 3, "t:a", 110, 121), done("q", 4, "t:a", 130, 140),
		{record: "q", seq: 5, key: "t:b", start: at(500)}, {record: "r", seq: 5, key: "t:b", start: at(650)},
		done("s", 6, "t:b", 810, 820)}
	return e
}

func TestAFaultlessRunHasNoFaults(t *testing.T) {
	t.Parallel()
	a := account(faultless())
	if !a.Clean() {
		t.Errorf("faults: %s", strings.Join(a.Faults, "; "))
	}
	if a.Messages != 6 || a.Stored != 5 || a.DeadLetters != 1 || a.Poison != 1 || a.Resent != 1 || a.Unconfirmed != 1 {
		t.Errorf("%+v", a)
	}
}

// TestEveryFaultIsFound breaks one thing at a time, and wants the count of it,
// and only that one, to say so.
func TestEveryFaultIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		spoil func(*evidence)
		count func(Account) int
	}{
		{"a sequence that nobody knows", func(e *evidence) { e.last = []uint64{7} }, func(a Account) int { return a.Unknown }},
		{"a copy that differs from what was published", func(e *evidence) { e.captured[1].Key = "t:c"; e.captured = e.captured[:2] }, func(a Account) int { return a.Unknown }},
		{"no result", func(e *evidence) { e.effects = e.effects[:2] }, func(a Account) int { return a.Lost }},
		{"processed, and never to its end", func(e *evidence) { e.runs[3].ok = false }, func(a Account) int { return a.Lost }},
		{"still in the stream", func(e *evidence) { e.left = 1 }, func(a Account) int { return a.Left }},
		{"a result twice", func(e *evidence) { e.effects = append(e.effects, e.effects[2]) }, func(a Account) int { return a.StoredTwice }},
		{"a result that changed", func(e *evidence) {
			e.effects = append(e.effects, effect{kind: "changed", key: "t:a", context: "one"})
		}, func(a Account) int { return a.StoredTwice }},
		{"a result of nothing", func(e *evidence) {
			e.effects = append(e.effects, effect{kind: "stored", key: "t:z", context: "one"})
		}, func(a Account) int { return a.FromNowhere }},
		{"a dead letter twice", func(e *evidence) { e.dead[5] = append(e.dead[5], at(802)) }, func(a Account) int { return a.DeadTwice }},
		{"dead-lettered with a result", func(e *evidence) { e.dead[3] = []time.Time{at(122)} }, func(a Account) int { return a.StoredAndDead }},
		{"dead-lettered for nothing", func(e *evidence) { e.dead[3], e.effects = []time.Time{at(122)}, e.effects[:2] }, func(a Account) int { return a.WronglyDead }},
		{"a poison one with a result", func(e *evidence) {
			e.effects = append(e.effects, effect{kind: "stored", key: "t:b", context: "poison1", version: 9})
		}, func(a Account) int { return a.PoisonStored }},
		{"two at a time", func(e *evidence) { e.runs[2].start, e.runs[2].end = at(15), at(121) }, func(a Account) int { return a.Concurrent }},
		{"a killed one's run still on", func(e *evidence) { e.runs[5].start = at(590) }, func(a Account) int { return a.Concurrent }},
		{"begun too early", func(e *evidence) { e.runs[3].start, e.runs[3].end = at(100), at(105) }, func(a Account) int { return a.OutOfOrder }},
		{"begun before the dead letter of the one before", func(e *evidence) { e.runs[6].start = at(790) }, func(a Account) int { return a.OutOfOrder }},
		{"begun after one that no one gave up", func(e *evidence) { clear(e.dead) }, func(a Account) int { return a.OutOfOrder }},
		{"results in another order", func(e *evidence) {
			e.effects[0], e.effects[2] = e.effects[2], e.effects[0]
			e.effects[2].version, e.effects[2].claim = 2, 8
		}, func(a Account) int { return a.EffectsDisorder }},
		{"a result under an older fence", func(e *evidence) { e.effects[2].version, e.effects[2].claim = 1, 6 }, func(a Account) int { return a.FenceBack }},
		{"a result of a zombie", func(e *evidence) {
			e.freezes = []Freeze{{Record: "x", Claim: 8, Stopped: at(30), Resumed: at(90), Replaced: true}}
			e.runs = append(e.runs, run{record: "s", seq: 1, key: e.effects[0].key, start: at(40), end: at(50), ok: true})
		}, func(a Account) int { return a.ZombieEffects }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			e := faultless()
			c.spoil(&e)
			a := account(e)
			if c.count(a) == 0 || a.Clean() {
				t.Errorf("not found: %+v", a)
			}
		})
	}
}

// TestAZombiesTailIsNoConcurrency: a process is stopped in the middle of a
// message, its successor processes that one, and then it goes on and ends.
func TestAZombiesTailIsNoConcurrency(t *testing.T) {
	t.Parallel()
	e := faultless()
	e.runs[2].ok, e.runs[2].end = false, at(9_500)
	e.freezes = []Freeze{{Record: "q", Claim: 7, Stopped: at(115), Resumed: at(9_490), Replaced: true}}
	e.runs[3] = run{record: "s", seq: 3, key: "t:a", start: at(9_000), end: at(9_495), ok: true}
	e.runs = append(e.runs, run{record: "s", seq: 4, key: "t:a", start: at(9_600), end: at(9_610), ok: true})
	e.effects[2].at, e.deaths["q"] = at(9_010), at(20_000)
	e.runs[4].record, e.runs[4].end, e.runs[4].ok = "u", at(501), false
	a := account(e)
	if !a.Clean() || a.ZombieTails != 1 || a.ZombieTail != 10*time.Millisecond {
		t.Errorf("%d tails, the longest %v; faults: %s", a.ZombieTails, a.ZombieTail, strings.Join(a.Faults, "; "))
	}
	e.freezes[0].Stopped = at(109) // the signal was sent a moment before the message began
	if a := account(e); !a.Clean() {
		t.Errorf("begun between signal and stop: %s", strings.Join(a.Faults, "; "))
	}
	e.freezes[0].Replaced = false
	if a := account(e); a.Concurrent == 0 {
		t.Error("of one that was not replaced it is none, either")
	}
}

// TestWhatAZombieStoresBeforeAnySuccessorIsAsIfItHadNotBeenStopped: a process is stopped while
// it stores, and goes on before its successor has come to the key.
func TestWhatAZombieStoresBeforeAnySuccessorIsAsIfItHadNotBeenStopped(t *testing.T) {
	t.Parallel()
	e := faultless()
	e.freezes = []Freeze{{Record: "q", Claim: 8, Stopped: at(112), Resumed: at(119), Replaced: true}}
	if a := account(e); !a.Clean() || a.ZombieStores != 1 {
		t.Errorf("%d; faults: %s", a.ZombieStores, strings.Join(a.Faults, "; "))
	}
}

func TestFaultsAreToldUpToABound(t *testing.T) {
	t.Parallel()
	e := faultless()
	e.last = []uint64{1000}
	if a := account(e); a.Unknown != 994 || len(a.Faults) != maxFaults {
		t.Errorf("%d unknown, %d told", a.Unknown, len(a.Faults))
	}
	if s := fmt.Sprint(account(e).Faults[0]); !strings.Contains(s, "message 7") {
		t.Errorf("the first fault is %q", s)
	}
}
