package audit_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/muster-dev/muster/partition/partitiontest/audit"
)

type fence int

func (f fence) Compare(g fence) int { return cmp.Compare(f, g) }

// run is a group of the workers a and b, with a key of three messages.
type run struct {
	*audit.Auditor[string, fence]

	slot  *audit.Slot[string, fence]
	key   *audit.Key[string, fence]
	rules []audit.Rule
}

func newRun() *run {
	r := &run{}
	r.Auditor = audit.New[string, fence](func(v audit.Violation) { r.rules = append(r.rules, v.Rule) })
	r.slot = r.Slot("slot 0")
	r.key = r.Key("k", r.slot)
	for range 3 {
		r.key.Acknowledge(r.key.Publish())
	}
	return r
}

// handling is one whose standing a test may change.
type handling struct {
	audit.Handling[string, fence]

	standing audit.Standing
}

func (r *run) begin(worker string, f fence, n int) *handling {
	h := &handling{Handling: audit.Handling[string, fence]{Worker: worker, Fence: f, Number: n}}
	h.Standing = func() audit.Standing { return h.standing }
	r.key.Begin(&h.Handling)
	return h
}

// process is a handler's call from its beginning to its end.
func (r *run) process(worker string, f fence, n int) audit.Outcome {
	r.slot.Held(worker, f, true)
	h := r.begin(worker, f, n)
	out := r.key.Write(&h.Handling)
	h.standing = audit.Over
	return out
}

// TestAuditor plays one run per case and wants the violations of its rule alone.
func TestAuditor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		play func(*run)
		want []audit.Rule // of the violations
	}{
		{"all in order", func(r *run) {
			r.process("a", 1, 1)
			r.process("b", 2, 2)
			r.process("b", 2, 3)
		}, nil},
		{"the last message again", func(r *run) {
			r.process("a", 1, 1)
			r.process("b", 2, 1)
			r.process("b", 2, 2)
			r.process("b", 2, 3)
		}, nil},
		{"a message is left", func(r *run) {
			r.process("a", 1, 1)
			r.process("a", 1, 2)
		}, []audit.Rule{audit.Lost}},
		{"a message that a fault has taken is left", func(r *run) {
			r.key.Take(2)
			r.process("a", 1, 1)
			r.process("a", 1, 3)
		}, nil},
		{"a message leaves the stream unprocessed", func(r *run) {
			r.key.Remove(1)
			r.finish()
		}, []audit.Rule{audit.Lost}},
		{"a message without acknowledgement is left", func(r *run) {
			r.finish()
			r.key.Publish()
		}, nil},
		{"a message before the one before", func(r *run) {
			h := r.begin("a", 1, 2)
			h.standing = audit.Over
			r.finish()
		}, []audit.Rule{audit.Order}},
		{"a message again after a later one", func(r *run) {
			r.finish()
			h := r.begin("a", 1, 2)
			h.standing = audit.Over
		}, []audit.Rule{audit.Order}},
		{"a message again after the broker went back", func(r *run) {
			r.finish()
			r.WentBack()
			r.process("a", 1, 2)
		}, nil},
		{"a result is stored again", func(r *run) {
			r.finish()
			h := &audit.Handling[string, fence]{Worker: "a", Fence: 1, Number: 3, Standing: func() audit.Standing { return audit.Over }}
			r.key.Store(h)
		}, []audit.Rule{audit.Twice}},
		{"results in another order", func(r *run) {
			for _, n := range []int{2, 1, 3} {
				h := &audit.Handling[string, fence]{Worker: "a", Fence: 1, Number: n, Standing: func() audit.Standing { return audit.Over }}
				r.key.Store(h)
			}
		}, []audit.Rule{audit.Order, audit.Order}},
		{"a result under a lower fence", func(r *run) {
			for n, f := range []fence{2, 1, 2} {
				h := &audit.Handling[string, fence]{Worker: string(rune('a' + f)), Fence: f, Number: n + 1, Standing: func() audit.Standing { return audit.Over }}
				r.key.Store(h)
			}
		}, []audit.Rule{audit.FenceGrows}},
		{"two handlers at a time", func(r *run) {
			first := r.begin("a", 1, 1)
			r.begin("b", 2, 1).standing = audit.Over
			first.standing = audit.Over
			r.finish()
		}, []audit.Rule{audit.OneHandler}},
		{"a handler beside one that is interrupted", func(r *run) {
			first := r.begin("a", 1, 1)
			first.standing = audit.Interrupted
			r.begin("b", 2, 1).standing = audit.Over
			first.standing = audit.Over
			r.finish()
		}, nil},
		{"a handler beside its own that is interrupted", func(r *run) {
			first := r.begin("a", 1, 1)
			first.standing = audit.Interrupted
			r.begin("a", 1, 1).standing = audit.Over
			first.standing = audit.Over
			r.finish()
		}, []audit.Rule{audit.OneHandler}},
		{"a handler beside a zombie of a lower fence", func(r *run) {
			first := r.begin("a", 1, 1)
			first.standing = audit.Stale
			r.begin("b", 2, 1).standing = audit.Over
			first.standing = audit.Over
			r.finish()
		}, nil},
		{"a handler beside a zombie of a higher fence", func(r *run) {
			first := r.begin("a", 2, 1)
			first.standing = audit.Stale
			r.begin("b", 1, 1).standing = audit.Over
			first.standing = audit.Over
			r.finish()
		}, []audit.Rule{audit.ZombieFence}},
		{"an owner with a lower fence", func(r *run) {
			r.slot.Held("a", 2, true)
			r.slot.Held("b", 1, true)
			r.finish()
		}, []audit.Rule{audit.FenceGrows}},
		{"a former owner with a lower fence", func(r *run) {
			r.slot.Held("a", 2, true)
			r.slot.Held("b", 1, false)
			r.finish()
		}, nil},
		{"two owners with one fence", func(r *run) {
			r.slot.Held("a", 2, true)
			r.slot.Held("b", 2, true)
			r.finish()
		}, []audit.Rule{audit.FenceUnique}},
		{"a valid write that is rejected", func(r *run) {
			r.begin("a", 2, 1).standing = audit.Over
			h := r.begin("a", 1, 1)
			r.writes("b", 2, 1)
			r.key.Write(&h.Handling)
			h.standing = audit.Over
			r.finish()
		}, []audit.Rule{audit.FenceGrows}},
		{"a rejected write after the map was lost", func(r *run) {
			h := r.begin("a", 1, 1)
			r.writes("b", 2, 1)
			r.ForgetFences()
			r.key.Write(&h.Handling)
			h.standing = audit.Over
			r.finish()
		}, nil},
		{"two write with one fence after the buckets went back", func(r *run) {
			r.IgnoreFences()
			r.writes("a", 2, 1)
			r.writes("b", 2, 2)
			r.finish()
		}, nil},
		{"two write with one fence", func(r *run) {
			r.writes("a", 2, 1)
			r.writes("b", 2, 2)
			r.finish()
		}, []audit.Rule{audit.FenceUnique}},
		{"a message is dead-lettered", func(r *run) {
			r.key.DeadLetter("a", 1, false)
			r.finish()
		}, []audit.Rule{audit.DeadLetter}},
		{"a poison message is dead-lettered", func(r *run) {
			r.key.DeadLetter("a", 1, true)
			r.finish()
		}, nil},
		{"a message that was not published", func(r *run) {
			r.finish()
			r.begin("a", 1, 4)
		}, []audit.Rule{audit.Unpublished}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRun()
			tt.play(r)
			r.Close()
			if !slices.Equal(r.rules, tt.want) {
				t.Errorf("violated: %v, want %v", r.rules, tt.want)
			}
		})
	}
}

// writes is a write of a handler that was not begun.
func (r *run) writes(worker string, f fence, n int) {
	r.key.Write(&audit.Handling[string, fence]{Worker: worker, Fence: f, Number: n, Standing: func() audit.Standing { return audit.Over }})
}

// finish has each message that waits processed, in order and with the highest fence.
func (r *run) finish() {
	for n := 1; n <= r.key.Published(); n++ {
		if r.key.Waits(n) {
			r.key.Finish(&audit.Handling[string, fence]{Worker: "a", Fence: 9, Number: n})
		}
	}
}
