package gem

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/secs"
)

// FuzzParsePlan: a plan that is taken has no faults and can be used.
func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"schema":1,"types":{"a":null},"tools":[{}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := ParsePlan(content, "plan")
		if err != nil {
			return
		}
		for _, tool := range p.Tools {
			kind := p.Types[tool.Type]
			for _, c := range kind.Chambers {
				k := newCollection(&kind, c)
				message := k.startTrace()
				if _, err := message.Body().Append(nil); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// FuzzParseClock: a time that is read is one of the times that runs may have, or is refused later.
func FuzzParseClock(f *testing.F) {
	for _, text := range []string{"260301130000", "2026030113000007", "2026-03-01T05:00:00-07:00", "2026-03-01T05:00:00.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, err := parseClock(text, time.UTC)
		if err == nil && at.Location() != time.UTC {
			t.Errorf("%q is in %v", text, at.Location())
		}
	})
}

// FuzzUnloading: whatever equipment answers to S6F23, the host doesn't ask more often in a row
// without a message than it says, and takes all that comes before.
func FuzzUnloading(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1, 0, 2})
	f.Add([]byte{255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, came []byte) {
		u := unloading{received: 7}
		received, idle := int64(7), 0
		for i := range len(came) + maxIdle {
			idle++
			if i < len(came) && came[i] > 0 { // else nothing comes any more
				received, idle = received+int64(came[i]), 0
			}
			got := u.answered(received, false)
			if barren := got == spoolBarren; barren != (idle == maxIdle) {
				t.Fatalf("answer %d, the %dth without a message: %v", i, idle, got)
			}
			if got == spoolBarren {
				return
			}
		}
		t.Error("the host asks without end")
	})
}

// FuzzTake: whatever equipment sends, the host doesn't fail, and what becomes of runs has no
// more than was sent. However often it sends it, people are told a limited number of times.
func FuzzTake(f *testing.F) {
	plan := planFor(f, 1, 2, 1, "127.0.0.1:1")
	kind := plan.Types["etch"]
	k := newCollection(&kind, kind.Chambers["c1"])
	seed := func(stream, function byte, item secs.Item) {
		data, err := item.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream, function, data)
	}
	stamp := secs.A("2026030112000010")
	report := secs.L(secs.Uint(k.report), secs.L(stamp, secs.A("r1"), secs.A("metal")))
	seed(6, 11, secs.L(secs.Uint(1), secs.Uint(startEvent), secs.L(report)))
	seed(6, 11, secs.L(secs.Uint(1), secs.Uint(endEvent), secs.L(report)))
	seed(6, 11, secs.L(secs.Uint(1), secs.Uint(endEvent), secs.L(secs.Uint(3), secs.L())))
	seed(6, 1, secs.L(secs.Uint(k.trace), secs.Uint(4), stamp, secs.L(secs.Float(1), secs.Float(2), secs.Byte(1))))
	seed(6, 1, secs.L(secs.Uint(k.trace), secs.Uint(1), stamp, secs.L(secs.A("1"), secs.L(), secs.B())))
	seed(5, 1, secs.L(secs.B(0x81), secs.Uint(3), secs.A("x")))
	seed(9, 5, secs.B(1, 2, 3))
	seed(6, 1, secs.L())
	seed(6, 1, secs.L(secs.Uint(k.trace), secs.Uint(4), secs.A("2026030112000510"), secs.L(secs.A("1"))))
	seed(6, 11, secs.L(secs.Uint(1), secs.Uint(startEvent)))
	f.Fuzz(func(t *testing.T, stream, function byte, data []byte) {
		item, err := secs.Decode(data)
		if err != nil {
			return
		}
		notices := 0
		h := New(Config{Plan: plan, Ledger: openLedger(t, filepath.Join(t.TempDir(), "ledger")), Report: func(r Report) {
			if r.What == Notice {
				notices++
			}
		}})
		s := h.sessions[plan.Tools[0].Name]
		s.courier = &courier{queue: make(chan Outcome, 1000)}
		// Before it, between two samples of a run, and at its end.
		begin := secs.New(6, 11, secs.L(secs.Uint(1), secs.Uint(startEvent), secs.L(report)))
		sample := func(n uint32) secs.Message {
			return secs.New(6, 1, secs.L(secs.Uint(k.trace), secs.Uint(n), secs.A("202603011200001"+string(rune('0'+n))), secs.L(secs.Float(1), secs.Float(2), secs.Byte(1))))
		}
		fuzzed := secs.Message{Stream: stream & 0x7f, Function: function, Reply: true, Item: &item}
		for _, m := range []secs.Message{fuzzed, begin, sample(1), fuzzed, sample(2), fuzzed} {
			if _, err := s.answer(m); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 * noticeBurst {
			if _, err := s.answer(fuzzed); err != nil {
				t.Fatal(err)
			}
		}
		mayBeOfRun := fuzzed.Is(6, 11) // is reported each time
		if notices > 3*noticeBurst && !mayBeOfRun {
			t.Errorf("%d notices of one message that is repeated", notices)
		}
		s.chambers[0].cutter.stop("over")
		if err := s.settle(s.chambers[0]); err != nil {
			t.Fatal(err)
		}
		close(s.courier.queue)
		for o := range s.courier.queue {
			if err := o.Ref.Validate(); err != nil || o.Trace == nil && o.Reason == "" {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}
