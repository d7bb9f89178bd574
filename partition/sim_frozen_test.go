package partition

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file freezes what workers do. The trace of a run is every effect of every worker,
// with its time, as numbers that no renaming changes; testdata/traces has a hash of the
// traces of each hundred seeds. A change that is to preserve behaviour leaves them as they
// are. One that is not writes them again, and its commit says what changed and why:
//
//	go test ./partition -run 'TestSimulation(With.*)?$' -sim.seeds 10000 -sim.freeze

var simFreeze = flag.Bool("sim.freeze", false, "write the hashes of the simulator's traces to testdata/traces")

// simHash is the FNV-1a hash of 64-bit words.
type simHash uint64

const (
	simHashBasis simHash = 14695981039346656037
	simHashPrime simHash = 1099511628211
)

func (h *simHash) add(words ...uint64) {
	for _, w := range words {
		*h = (*h ^ simHash(w)) * simHashPrime
	}
}

func (h *simHash) addText(s string) {
	for i := range len(s) {
		h.add(uint64(s[i]))
	}
	h.add(uint64(len(s)))
}

func flagWord(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// frozen begins an entry of the trace.
func (w *simWorker) frozen(what string, words ...uint64) {
	h := &w.s.hash
	h.addText(what)
	h.addText(w.name)
	h.add(uint64(w.s.now))
	h.add(words...)
}

func placeWord(p place) uint64 { return uint64(p.slots)<<32 | uint64(p.slot) }

// freezeEffect adds an effect of the machine.
func (w *simWorker) freezeEffect(e effect) {
	switch e := e.(type) {
	case kvEffect:
		w.frozen("bucket", uint64(e.op), e.rev, uint64(e.ttl))
	case probeEffect:
		w.frozen("probe", uint64(len(e.to)))
	case sendEffect:
		w.frozen("send", e.to.Claim)
	case planEffect:
		w.frozen("plan")
	case prepareEffect:
		w.frozen("prepare", uint64(e.generation.slots), uint64(len(e.slots)))
	case holdEffect:
		w.frozen("hold", placeWord(e.place), e.fence.Version, e.fence.Claim, flagWord(e.handed))
	case releaseEffect:
		w.frozen("release", placeWord(e.place), e.claim, flagWord(e.final))
	case forceEffect:
		w.frozen("force", placeWord(e.place))
	case dropEffect:
		w.frozen("drop", placeWord(e.place))
	case suspendEffect:
		w.frozen("suspend")
	case resumeEffect:
		w.frozen("resume")
	case takeEffect:
		w.frozen("take", placeWord(e.place), uint64(len(e.retire)))
	case emitEffect:
		w.freezeEvent(e.event)
	case exitEffect:
		w.frozen("exit")
	}
}

func (w *simWorker) freezeEvent(e event.Event) {
	kind := slices.Index(event.Kinds, e.Kind)
	w.frozen("event", uint64(kind), e.Claim, e.Epoch, e.Version, uint64(e.Slot), uint64(e.Before), uint64(e.After), uint64(e.Count), flagWord(e.Busy))
	for _, slot := range e.Slots {
		w.s.hash.add(uint64(slot))
	}
}

// freezeMap adds a map that was written.
func (w *simWorker) freezeMap(a *record.Assignment) {
	w.frozen("map", a.Version, a.Epoch, uint64(a.Slots))
	for slot, owner := range a.Owner {
		w.s.hash.add(uint64(owner), a.Since[slot])
	}
	for _, slot := range slices.Sorted(maps.Keys(a.Moves)) {
		w.s.hash.add(uint64(slot))
	}
}

// freezeDelivery adds an effect of the delivery.
func (w *simWorker) freezeDelivery(e deliveryEffect) {
	switch e := e.(type) {
	case fetchEffect:
		w.frozen("pull", placeWord(e.place))
	case handleEffect:
		w.frozen("handle", placeWord(e.place), e.message.Sequence, uint64(e.message.Attempt), flagWord(e.abandon), flagWord(e.queued != nil))
	case serveEffect:
		w.frozen("serve", placeWord(e.place), e.fence.Version, e.fence.Claim)
	case interruptEffect:
		w.frozen("interrupt")
	case settleEffect:
		w.frozen("settle", placeWord(e.place), e.mail.sequence, uint64(e.how))
	case returnEffect:
		w.frozen("return", placeWord(e.place), e.mail.sequence)
	case askEffect:
		w.frozen("ask", placeWord(e.place), e.number)
	case forcedEffect:
		w.frozen("forced", placeWord(e.place))
	}
}

// frozenTraces are the hashes of blocks of a hundred seeds, from 1.
type frozenTraces struct {
	path string
	want map[uint64]string // by the first seed of the block
	got  map[uint64]simHash
}

const frozenBlock = 100

func readFrozen(t *testing.T, name string) *frozenTraces {
	t.Helper()
	f := &frozenTraces{path: filepath.Join("testdata", "traces", name+".txt"), want: map[uint64]string{}, got: map[uint64]simHash{}}
	data, err := os.ReadFile(f.path)
	if err != nil && !*simFreeze {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var first uint64
		var hash string
		if _, err := fmt.Sscan(line, &first, &hash); err != nil {
			t.Fatalf("reading %s, %q: %v", f.path, line, err)
		}
		f.want[first] = hash
	}
	return f
}

// compare compares the blocks of which every seed ran.
func (f *frozenTraces) compare(t *testing.T) {
	t.Helper()
	wrong := 0
	for first := uint64(1); ; first += frozenBlock {
		h := simHashBasis
		for seed := first; seed < first+frozenBlock; seed++ {
			of, ran := f.got[seed]
			if !ran {
				h = 0
				break
			}
			h.add(uint64(of))
		}
		if h == 0 {
			if first > slices.Max(slices.Collect(maps.Keys(f.got))) {
				break
			}
			continue
		}
		got := fmt.Sprintf("%016x", uint64(h))
		if *simFreeze {
			f.want[first] = got
		}
		if want := f.want[first]; want != got && want != "" {
			wrong++
			t.Errorf("the workers behave otherwise than before in seeds %d to %d: the hash of their traces is %s, and was %s", first, first+frozenBlock-1, got, want)
		}
	}
	if wrong > 0 {
		t.Error("if that is meant, write the hashes again: go test ./partition -run 'TestSimulation(With.*)?$' -sim.seeds 10000 -sim.freeze")
	}
	if *simFreeze {
		f.write(t)
	}
}

func (f *frozenTraces) write(t *testing.T) {
	t.Helper()
	var out strings.Builder
	for _, first := range slices.Sorted(maps.Keys(f.want)) {
		fmt.Fprintln(&out, first, f.want[first])
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
