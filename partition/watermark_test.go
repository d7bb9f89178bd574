package partition

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestWatermarks/...: what is remembered of a message, by what was settled before.
func TestWatermarks(t *testing.T) {
	t.Parallel()
	at := func(sequence uint64, published int64) original { return original{sequence, published} }
	for name, tt := range map[string]struct {
		settled []original
		comes   original
		want    recollection
	}{
		"nothing was settled":                           {nil, at(1, 100), recallNothing},
		"a later message":                               {[]original{at(5, 100)}, at(6, 200), recallNothing},
		"a later message, by a clock that is behind":    {[]original{at(5, 100)}, at(6, 50), recallNothing},
		"the last one again":                            {[]original{at(5, 100)}, at(5, 100), recallSettled},
		"an earlier one again":                          {[]original{at(3, 70), at(5, 100)}, at(3, 70), recallSettled},
		"an earlier one that another worker settled":    {[]original{at(5, 100)}, at(4, 90), recallFormer},
		"an earlier one, by a clock that was ahead":     {[]original{at(4, 120), at(5, 100)}, at(4, 120), recallSettled},
		"the sequence of the last, published later":     {[]original{at(5, 100)}, at(5, 101), recallReplaced},
		"the sequence of the last, published earlier":   {[]original{at(5, 100)}, at(5, 99), recallReplaced},
		"an earlier sequence, published after the last": {[]original{at(5, 100)}, at(1, 101), recallReplaced},
		"settled out of order":                          {[]original{at(5, 100), at(3, 70)}, at(5, 100), recallSettled},
		"settled out of order, and a later one":         {[]original{at(5, 100), at(3, 70)}, at(6, 110), recallNothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w watermarks
			for _, o := range tt.settled {
				w.settle(7, o, 0, Fence{1, 1})
			}
			if got := w.recall(7, tt.comes); got != tt.want {
				t.Errorf("message %v: %v, want %v", tt.comes, got, tt.want)
			}
			if got := w.recall(8, tt.comes); got != recallNothing {
				t.Errorf("message %v of another slot: %v", tt.comes, got)
			}
		})
	}
}

func TestWatermarksSeeTheirStream(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	settled := original{5, day.Add(time.Hour).UnixNano()}
	for name, tt := range map[string]struct {
		looked  bool // before the message was settled
		created time.Time
		last    uint64
		known   uint64 // 0: what is known when it looks
		want    string // part of what it says
	}{
		"the same":                               {true, day, 9, 0, ""},
		"the same, for the first time":           {false, day, 9, 0, ""},
		"emptied, and as long as before":         {true, day, 5, 0, ""},
		"the answer is older than the last":      {true, day, 4, 4, ""},
		"created at another time":                {true, day.Add(time.Minute), 9, 0, "created"},
		"created after what was settled":         {false, day.Add(2 * time.Hour), 9, 0, "after a message"},
		"shorter":                                {true, day, 4, 0, "last sequence is 4"},
		"shorter, for the first time":            {false, day, 4, 0, "last sequence is 4"},
		"restored as of earlier, and longer now": {true, day, 1000, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w watermarks
			if tt.looked {
				if what := w.saw(day, 2, 0); what != "" {
					t.Fatal(what)
				}
			}
			w.settle(0, settled, 0, Fence{1, 1})
			known := tt.known
			if known == 0 {
				known = w.last
			}
			got := w.saw(tt.created, tt.last, known)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got == "" && w.last < 5 {
				t.Errorf("the last sequence is %d by now, and 5 was settled", w.last)
			}
		})
	}
}

// TestWatermarksForget: what began before all was forgotten is not remembered.
func TestWatermarksForget(t *testing.T) {
	t.Parallel()
	var w watermarks
	w.settle(0, original{5, 100}, 0, Fence{1, 1})
	w.settle(1, original{6, 110}, 0, Fence{1, 1})
	if n := w.forget(); n != 2 || w.forgets != 1 || w.last != 0 {
		t.Errorf("%d slots forgotten, %+v", n, w)
	}
	if w.settle(0, original{7, 120}, 0, Fence{1, 1}) {
		t.Error("a message of the earlier stream may be acknowledged")
	}
	if got := w.recall(0, original{1, 130}); got != recallNothing {
		t.Errorf("the first message of the next stream: %v", got)
	}
	if !w.settle(0, original{1, 130}, 1, Fence{1, 1}) {
		t.Error("a message of this stream may not be acknowledged")
	}
	if got := w.recall(0, original{1, 130}); got != recallSettled {
		t.Errorf("the first message of the next stream again: %v", got)
	}
}

// TestWatermarksOfOwners: between two times as the owner another worker may have settled
// messages, and queued some of them.
func TestWatermarksOfOwners(t *testing.T) {
	t.Parallel()
	var w watermarks
	w.settle(0, original{5, 100}, 0, Fence{1, 1})
	w.settle(0, original{6, 110}, 0, Fence{1, 1})
	w.settle(0, original{9, 140}, 0, Fence{3, 1})
	w.settle(0, original{10, 150}, 0, Fence{3, 1})
	for o, want := range map[original]recollection{
		{5, 100}:  recallFormer,
		{7, 120}:  recallFormer,
		{9, 140}:  recallSettled,
		{10, 150}: recallSettled,
		{11, 160}: recallNothing,
	} {
		if got := w.recall(0, o); got != want {
			t.Errorf("message %d: %v, want %v", o.sequence, got, want)
		}
	}
}

// TestAFormerOwnersMessageHandledAgain: where the retry queue went back, a message that a former
// owner had settled is handled again. The messages between it and the first one of this owner
// are still the former owner's: they may have been queued, and their copies lost, too.
func TestAFormerOwnersMessageHandledAgain(t *testing.T) {
	t.Parallel()
	message := func(n uint64) original { return original{n, int64(n)} }
	former, owner := Fence{1, 1}, Fence{3, 1}
	for name, tt := range map[string]struct {
		keep   int
		inHand []uint64
		again  []uint64
		want   map[uint64]recollection
	}{
		"one message":            {again: []uint64{5}, want: map[uint64]recollection{4: recallFormer, 5: recallSettled, 6: recallFormer, 8: recallFormer, 9: recallSettled}},
		"several":                {again: []uint64{4, 6}, want: map[uint64]recollection{3: recallFormer, 4: recallSettled, 5: recallSettled, 6: recallSettled, 7: recallFormer, 9: recallSettled}},
		"another time":           {again: []uint64{5, 6, 4}, want: map[uint64]recollection{4: recallSettled, 5: recallFormer, 8: recallFormer, 9: recallSettled}},
		"with several in flight": {keep: 8, inHand: []uint64{8}, again: []uint64{5, 4}, want: map[uint64]recollection{3: recallFormer, 4: recallSettled, 5: recallSettled, 6: recallFormer, 8: recallNothing, 9: recallSettled}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watermarks{keep: tt.keep}
			w.settle(0, message(2), 0, former)
			for _, n := range tt.inHand {
				w.taken(0, message(n))
			}
			w.settle(0, message(9), 0, owner)
			for _, n := range tt.again {
				w.settle(0, message(n), 0, owner)
			}
			for n, want := range tt.want {
				if got := w.recall(0, message(n)); got != want {
					t.Errorf("message %d: %v, want %v", n, got, want)
				}
			}
			for _, n := range tt.inHand {
				w.settle(0, message(n), 0, owner)
				if got := w.recall(0, message(n)); got != recallSettled {
					t.Errorf("message %d, settled: %v", n, got)
				}
			}
		})
	}
}

// TestQueuedMessagesOutliveTheStream: a message whose copy may be lost is looked for, also when
// the stream was found to be another one since it was queued.
func TestQueuedMessagesOutliveTheStream(t *testing.T) {
	t.Parallel()
	var w watermarks
	queued, erased := original{5, 100}, original{6, 110}
	w.settle(0, queued, 0, Fence{1, 1})
	w.queue(queued, 7)
	w.erase(erased)
	w.forget()
	w.settle(0, original{9, 200}, 1, Fence{1, 1})
	if got := w.recall(0, queued); got != recallQueued {
		t.Errorf("what was queued: %v", got)
	}
	if got := w.recall(0, erased); got != recallSettled {
		t.Errorf("what was removed because its copy was tried: %v", got)
	}
}

// FuzzWatermarks holds watermarks to what they promise, over streams that are made
// again and roll back: a message that was not settled is never taken for one that
// was, as long as the stream is asked as a runner does; and while a stream is the one
// it was, a settled message is never handled twice.
func FuzzWatermarks(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Add(uint64(184))
	f.Fuzz(watermarksHold)
}

func watermarksHold(t *testing.T, seed uint64) {
	type stream struct {
		created int64
		all     []original // by sequence, from 1
		of      []int      // slots
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	clock := int64(1000)
	now := func() int64 { clock += 1 + rng.Int64N(10); return clock }
	var w watermarks
	s := stream{created: now()}
	synced := s
	steady := seed%4 != 0
	handled, again := map[original]int{}, map[original]bool{} // again: it may be handled again
	look := func() string { return w.saw(time.Unix(0, s.created), uint64(len(s.all)), w.last) }
	look() // as workers do when they begin, and after they have forgotten all
	forget := func() {
		w.forget()
		look()
		for o := range handled {
			again[o] = true
		}
	}
	for range 400 {
		switch n := rng.IntN(20); {
		case n < 10: // published
			s.all, s.of = append(s.all, original{uint64(len(s.all) + 1), now()}), append(s.of, rng.IntN(3))
		case n == 10:
			synced = stream{s.created, append([]original(nil), s.all...), append([]int(nil), s.of...)}
		case n == 11 && rng.IntN(4) == 0: // it rolls back, or is made again
			s = stream{synced.created, append([]original(nil), synced.all...), append([]int(nil), synced.of...)}
			if rng.IntN(2) == 0 {
				s = stream{created: now()}
			}
			if !steady {
				clock -= rng.Int64N(30) // and so does its clock
			}
		case len(s.all) > 0: // delivered, once more maybe
			i := rng.IntN(len(s.all))
			for j := range i { // in order: what lies before it in its slot comes first
				if s.of[j] == s.of[i] && handled[s.all[j]] == 0 {
					i = j
					break
				}
			}
			o, slot := s.all[i], s.of[i]
			was := false
			switch w.recall(slot, o) {
			case recallReplaced:
				forget()
			case recallSettled, recallFormer: // without a retry queue, or with this owner's claim in it
				if was = look() == ""; !was {
					forget()
				}
			case recallNothing:
			}
			switch {
			case was && handled[o] == 0 && steady:
				t.Fatalf("seed %d: message %v is taken for settled", seed, o)
			case was && handled[o] == 0:
				// The clock went back, and the stream is as long again as it was:
				// nothing shows it.
				return
			case was:
			case handled[o] > 0 && !again[o]:
				t.Fatalf("seed %d: message %v is handled again", seed, o)
			default:
				handled[o]++
				w.settle(slot, o, w.forgets, Fence{1, 1})
			}
		}
	}
}

// TestQueuedMessagesAreBounded: a worker remembers a bounded number of copies in the retry queue. With
// more it takes no message for settled without looking for a copy.
func TestQueuedMessagesAreBounded(t *testing.T) {
	t.Parallel()
	var w watermarks
	at := func(n int) original { return original{uint64(n), int64(n)} }
	w.settle(3, at(1), 0, Fence{1, 1})
	w.settle(3, at(mostQueued+2), 0, Fence{1, 1})
	w.queue(at(1), 7)
	if got := w.recall(3, at(1)); got != recallQueued {
		t.Errorf("a queued message is %v", got)
	}
	if got := w.recall(3, at(2)); got != recallSettled {
		t.Errorf("a message that was not queued is %v", got)
	}

	for n := range mostQueued + 1 {
		w.queue(at(n+1), 7)
	}
	if len(w.queued) != 0 {
		t.Errorf("%d are remembered", len(w.queued))
	}
	if got := w.recall(3, at(2)); got != recallQueued {
		t.Errorf("with too many queued a settled message is %v", got)
	}
	w.forget()
	if !w.crowded {
		t.Error("what was queued is forgotten with the stream, and may come back with another one")
	}
}

// TestMessagesInHandAreNotSettled is the memory of a slot with several messages in flight.
// The messages are 1 to 9, published one after another.
func TestMessagesInHandAreNotSettled(t *testing.T) {
	t.Parallel()
	message := func(n uint64) original { return original{n, int64(n)} }
	first, second := Fence{1, 1}, Fence{2, 1}
	for name, test := range map[string]func(w *watermarks, expect func(n uint64, want recollection)){
		"a later message is settled first": func(w *watermarks, expect func(uint64, recollection)) {
			w.taken(0, message(1))
			w.taken(0, message(2))
			w.settle(0, message(2), 0, first)
			expect(1, recallNothing)
			expect(2, recallSettled)
			w.settle(0, message(1), 0, first)
			expect(1, recallSettled)
			expect(3, recallNothing)
		},
		"one stays in hand while many are settled": func(w *watermarks, expect func(uint64, recollection)) {
			w.taken(0, message(1))
			for n := uint64(2); n <= 9; n++ {
				w.taken(0, message(n))
				w.settle(0, message(n), 0, first)
			}
			expect(1, recallNothing)
			for n := uint64(2); n <= 9; n++ {
				expect(n, recallSettled)
			}
		},
		"one that was never in hand is not settled while the later ones are remembered": func(w *watermarks, expect func(uint64, recollection)) {
			w.settle(0, message(1), 0, first)
			w.settle(0, message(4), 0, first)
			expect(3, recallNothing)
			w.settle(0, message(6), 0, first)
			w.settle(0, message(7), 0, first)
			w.settle(0, message(8), 0, first)
			w.settle(0, message(9), 0, first)
			expect(3, recallSettled)
		},
		"an earlier one is settled with a later fence": func(w *watermarks, expect func(uint64, recollection)) {
			w.taken(0, message(1))
			w.taken(0, message(2))
			w.settle(0, message(2), 0, first)
			w.settle(0, message(1), 0, second)
			expect(1, recallSettled)
			expect(2, recallSettled)
		},
		"the owner goes on with a later fence": func(w *watermarks, expect func(uint64, recollection)) {
			for n := uint64(1); n <= 8; n++ {
				w.settle(0, message(n), 0, first)
			}
			w.refence(generation{1, 1}.place(0), first, second)
			w.taken(0, message(9))
			w.settle(0, message(9), 0, second)
			expect(3, recallSettled)
		},
		"one that was settled is not in hand": func(w *watermarks, expect func(uint64, recollection)) {
			w.settle(0, message(1), 0, first)
			w.taken(0, message(1))
			expect(1, recallSettled)
		},
		"what was in hand when the slot is at rest was settled by another owner": func(w *watermarks, expect func(uint64, recollection)) {
			w.taken(0, message(1))
			w.settle(0, message(2), 0, second)
			w.atRest(0)
			expect(1, recallFormer)
		},
		"another message has the sequence of one in hand": func(w *watermarks, expect func(uint64, recollection)) {
			w.taken(0, original{1, 99})
			w.settle(0, message(2), 0, first)
			expect(1, recallFormer)
			w.settle(0, message(9), 0, first)
			if got := w.recall(0, original{9, 10}); got != recallReplaced {
				t.Errorf("another message with sequence 9 is %v, want %v", got, recallReplaced)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watermarks{keep: 4}
			test(w, func(n uint64, want recollection) {
				t.Helper()
				if got := w.recall(0, message(n)); got != want {
					t.Errorf("message %d is %v, want %v", n, got, want)
				}
			})
		})
	}
}
