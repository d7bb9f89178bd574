package e2e

import (
	"bytes"
	"io"
	"math"
	"runtime/pprof"
	"slices"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/local"
)

// TestALoadIsCarriedAndMeasured plays the scenario on a small stage, at a rate and
// with large traces.
func TestALoadIsCarriedAndMeasured(t *testing.T) {
	for name, o := range map[string]Options{
		"etch-sized": {Options: local.Options{TrafficOptions: local.TrafficOptions{Rate: 100}}},
		"strategies": {Options: local.Options{TrafficOptions: local.TrafficOptions{Rate: 50}, GroupOptions: local.GroupOptions{Shards: 3}}, Case: caseStrategies, Points: 800},
	} {
		t.Run(name, func(t *testing.T) {
			o.Defenders, o.Chambers, o.Slots, o.Kills, o.Seed, o.Busy, o.Out, o.loadFor = 3, 9, 12, 1, 1, true, io.Discard, 2*time.Second
			r, err := Run(t.Context(), loadName, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Checks {
				if !c.OK && !c.Timed {
					t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
				}
			}
			if n := r.Measurements["published"]; n != 2*o.Rate {
				t.Errorf("%v messages published, want %d", n, 2*o.Rate)
			}
			if q, ok := r.Measurements["latency_ms"].(Quantiles); !ok || q.N != 2*o.Rate || !(q.P50 > 0 && q.P50 <= q.P95 && q.P95 <= q.P99 && q.P99 <= q.Max) {
				t.Errorf("latency is %v", r.Measurements["latency_ms"])
			}
			if q, ok := r.Measurements["ack_ms"].(Quantiles); !ok || q.N == 0 {
				t.Errorf("of acknowledgements: %v", r.Measurements["ack_ms"])
			}
		})
	}
}

func TestASearchEndsNearTheHighestRateThatIsHeld(t *testing.T) {
	t.Parallel()
	for _, limit := range []float64{1, 7, 100, 140, 3000, 12345} {
		held, failed, tries := 0.0, 0.0, 0
		for rate := float64(firstRate); ; rate = nextRate(held, failed) {
			tries++
			if rate <= limit {
				held = rate
			} else {
				failed = rate
			}
			if searched(held, failed) {
				break
			}
			if tries > 30 {
				t.Fatalf("limit %v: no end, between %v and %v", limit, held, failed)
			}
		}
		if held > limit || failed <= limit || failed-held > max(1, finest*failed) {
			t.Errorf("limit %v: ended between %v and %v", limit, held, failed)
		}
	}
}

func TestTimesCountFromWhenAMessageWasDue(t *testing.T) {
	t.Parallel()
	ph := newPhase(10, 4, 3, 2)
	ph.began = time.Now().Add(-10 * time.Second)
	done := func(number int, hit bool) { ph.stored(number, defender.Processed{Stored: true, CacheHit: hit}) }
	done(10, true)
	done(13, false) // the next one of the same chamber
	done(13, true)  // once more
	done(9, true)   // of another phase
	done(12, true)
	if ph.distinct.Load() != 3 || ph.again.Load() != 1 || ph.disorder.Load() != 0 || ph.hits.Load() != 2 {
		t.Errorf("%d stored, %d again, %d out of order, %d hits", ph.distinct.Load(), ph.again.Load(), ph.disorder.Load(), ph.hits.Load())
	}
	// The messages were due 10, 9.5, 9 and 8.5 s ago.
	if q := ph.latency(); q.N != 3 || math.Abs(q.P50-9000) > 500 || q.Max < 10_000 {
		t.Errorf("latencies are %s", q)
	}
	if ph.held(0) {
		t.Error("a rate is held at which messages are missing")
	}
	for chamber, want := range [][]int{{12}, {10, 13}, {11}} {
		if got := ph.contextsOf(chamber, 3); !slices.Equal(got, want) {
			t.Errorf("chamber %d has %v, want %v", chamber, got, want)
		}
	}
	late := newPhase(0, 6, 3, 1)
	late.stored(4, defender.Processed{})
	late.stored(1, defender.Processed{})
	if late.disorder.Load() != 1 {
		t.Error("an earlier message of a chamber stored after a later one is in order")
	}
}

func TestNumbersOfMessagesAreReadBack(t *testing.T) {
	t.Parallel()
	if n, ok := numberOf(withTrace("load000000042", 7)); !ok || n != 42 {
		t.Errorf("read %d, %t", n, ok)
	}
	if _, ok := numberOf(withTrace("seed042", 7)); ok {
		t.Error("an earlier context is a message")
	}
	for subject, want := range map[string]uint64{
		"$JS.ACK.dc-notifications.defender-7.1.4711.9.1700000000000000000.0":            4711,
		"$JS.ACK.hub.AbCdEf.dc-notifications.defender-7.1.4711.9.1700000000000000000.0": 4711,
	} {
		if stream, n, ok := ackedSequence(subject); !ok || n != want || stream != defender.Stream {
			t.Errorf("%s: read %s, %d, %t", subject, stream, n, ok)
		}
	}
	if _, _, ok := ackedSequence("$JS.ACK.x"); ok {
		t.Error("a short subject has a sequence")
	}
}

func TestQuartersAreCompared(t *testing.T) {
	t.Parallel()
	w := &watcher{}
	for i := range 40 {
		w.samples = append(w.samples, sample{HeapMiB: 100 + float64(i)})
	}
	g := w.growth(func(s sample) float64 { return s.HeapMiB })
	if g.Before != 115 || g.After != 135 || g.Max != 139 {
		t.Errorf("growth is %+v", g)
	}
	if g.flat(1.1, 16) || !g.flat(1.2, 0) || !g.flat(1, 20) {
		t.Error("flat is not what it says")
	}
}

func TestAStackCountsForThePartThatItIsIn(t *testing.T) {
	t.Parallel()
	const muster = "github.com/muster-dev/muster/"
	for _, c := range []struct {
		want  string
		stack []string
	}{
		{"codec", []string{"runtime.memmove", muster + "tchart.(*Decoder).Decode", muster + "defender.(*Defender).conclude"}},
		{"statistics and verdicts", []string{"math.log", "gonum.org/v1/gonum/stat/distuv.StudentsT.Quantile", muster + "defender/uchart.Judge"}},
		{"store", []string{"modernc.org/sqlite/lib._sqlite3Step", "database/sql.withLock", muster + "defender/sqlite.(*writer).loop"}},
		{"NATS server", []string{"syscall.write", "github.com/nats-io/nats-server/v2/server.(*client).flushOutbound"}},
		{"NATS clients", []string{"github.com/nats-io/nats%2ego.(*Conn).readLoop"}},
		{"publisher", []string{"github.com/nats-io/nats%2ego.(*Conn).publish", muster + "e2e.(*publisher).send"}},
		{"garbage collection", []string{"runtime.scanobject", "runtime.gcAssistAlloc", muster + "tchart.Decode"}},
		{"rest of the defender", []string{"encoding/json.Marshal", muster + "defender.(*Defender).process"}},
		{restOfTime, []string{"runtime.schedule", "runtime.mcall"}},
	} {
		if got := partOf(c.stack); got != c.want {
			t.Errorf("%v counts for %s, want %s", c.stack, got, c.want)
		}
	}
}

// TestAProfileIsRead reads one that package pprof wrote while something was to do.
func TestAProfileIsRead(t *testing.T) {
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		t.Fatal(err)
	}
	x := 0.0
	for end := processor.Time() + 200*time.Millisecond; processor.Time() < end; {
		for i := range 10_000 {
			x += math.Sqrt(float64(i))
		}
	}
	pprof.StopCPUProfile()
	if x == 0 {
		t.Fatal("nothing was computed")
	}
	p, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	ofThis := func(s *profile.Sample) bool {
		return slices.Contains(functionsOf(s), "github.com/muster-dev/muster/e2e.TestAProfileIsRead")
	}
	if !slices.ContainsFunc(p.Sample, ofThis) {
		t.Errorf("of %d samples none is of this function", len(p.Sample))
	}

	shares, err := sharesOf(&b)
	sum := 0.0
	for _, s := range shares {
		sum += s.share
	}
	if err != nil || math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares %v, sum %v, %v", shares, sum, err)
	}
}
