package audit

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// oneCut is the evidence of a run with a cut from 200 to 250 ms: of chamber a's three
// messages the first is processed before it, the second is lost with it, the third is
// processed after it, and has the lost one's sequence. Chamber b's only one is processed
// twice, since the cut has lost its acknowledgement.
func oneCut() (e evidence, cuts []Cut, acked map[delivery]bool) {
	message := func(seq uint64, key, context string, acked int) Published {
		return Published{Sequence: seq, Key: key, Context: context, Acked: at(acked)}
	}
	e.published = []Published{message(1, "t:a", "one", 10), message(2, "t:b", "one", 12), message(3, "t:a", "two", 190), message(3, "t:a", "three", 300)}
	stored := func(ms int) int64 { return at(ms).UnixNano() }
	done := func(record string, seq uint64, key, context string, of int64, from, to int) run {
		return run{record: record, seq: seq, key: key, context: context, stored: of, start: at(from), end: at(to), ok: true}
	}
	e.runs = []run{done("p", 1, "t:a", "one", stored(9), 20, 30), done("q", 2, "t:b", "one", stored(11), 20, 30),
		done("q", 2, "t:b", "one", stored(11), 260, 270), done("p", 3, "t:a", "three", stored(299), 310, 320)}
	e.effects = []effect{
		{kind: "stored", at: at(25), key: "t:a", context: "one", version: 1, claim: 7},
		{kind: "stored", at: at(25), key: "t:b", context: "one", version: 1, claim: 8},
		{kind: "stored", at: at(315), key: "t:a", context: "three", version: 1, claim: 7},
	}
	e.dead = map[uint64][]time.Time{}
	cuts = []Cut{{Killed: at(200), Back: at(250), holds: map[contextKey]bool{{"t:b", "one"}: true}}}
	return e, cuts, map[delivery]bool{{1, stored(9)}: true, {2, stored(11)}: true, {3, stored(299)}: true}
}

func TestLossAccount(t *testing.T) {
	t.Parallel()
	t.Run("what a cut has lost is counted and is no fault", func(t *testing.T) {
		t.Parallel()
		a := lossAccount(oneCut())
		if !a.Clean() {
			t.Errorf("faults: %s", strings.Join(a.Faults, "; "))
		}
		if a.Messages != 4 || a.Stored != 3 || a.Lost != 1 || a.OldestMS != 10 || a.Again != 1 || a.Acks != 3 || !slices.Equal(a.LostByCut, []int{1}) {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a message that is stored and then lost with a cut is done", func(t *testing.T) {
		t.Parallel()
		e, cuts, acked := oneCut()
		e.runs[0].ok, e.runs[0].end = false, at(200)
		delete(acked, delivery{1, e.runs[0].stored})
		if a := lossAccount(e, cuts, acked); !a.Clean() || a.Stored != 3 {
			t.Errorf("%+v", a)
		}
	})
	for _, c := range []struct {
		what  string
		spoil func(e *evidence, cuts []Cut, acked map[delivery]bool)
		count func(LossAccount) int
	}{
		{"a lost message that survived the cut", func(_ *evidence, cuts []Cut, _ map[delivery]bool) { cuts[0].holds[contextKey{"t:a", "two"}] = true },
			func(a LossAccount) int { return a.LostOtherwise }},
		{"a lost message from after the last cut", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.published[2].Acked = at(260) },
			func(a LossAccount) int { return a.LostOtherwise }},
		{"a new message with an old sequence, acknowledged unseen", func(e *evidence, _ []Cut, acked map[delivery]bool) {
			acked[delivery{1, at(300).UnixNano()}] = true
		}, func(a LossAccount) int { return a.SilentAcks }},
		{"an acknowledgement of a message whose processing failed", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.runs[3].ok = false },
			func(a LossAccount) int { return a.SilentAcks }},
		{"a dead letter", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.dead[3] = []time.Time{at(90)} }, func(a LossAccount) int { return a.DeadLetters }},
		{"a result twice", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.effects = append(e.effects, e.effects[1]) },
			func(a LossAccount) int { return a.AppliedTwice }},
		{"a result that changed", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.effects[1].kind = "changed" },
			func(a LossAccount) int { return a.AppliedTwice }},
		{"a result of nothing", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.effects[1].key = "t:z" },
			func(a LossAccount) int { return a.FromNowhere }},
		{"results in another order", func(e *evidence, _ []Cut, _ map[delivery]bool) {
			e.effects[0], e.effects[2] = e.effects[2], e.effects[0]
		}, func(a LossAccount) int { return a.EffectsDisorder }},
		{"a result under an older fence", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.effects[2].claim = 6 },
			func(a LossAccount) int { return a.FenceBack }},
		{"begun too early", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.runs[3].start, e.runs[3].end = at(15), at(16) },
			func(a LossAccount) int { return a.OutOfOrder }},
		{"two at a time", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.runs[2].start = at(25) }, func(a LossAccount) int { return a.Concurrent }},
		{"still in the stream", func(e *evidence, _ []Cut, _ map[delivery]bool) { e.left = 1 }, func(a LossAccount) int { return a.Left }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			e, cuts, acked := oneCut()
			c.spoil(&e, cuts, acked)
			if a := lossAccount(e, cuts, acked); c.count(a) == 0 || a.Clean() {
				t.Errorf("not found: %+v", a)
			}
		})
	}
}
