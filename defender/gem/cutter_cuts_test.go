package gem

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
)

// sending is what equipment sends at one moment: samples, or an event.
type sending struct {
	samples *message
	event   *event
}

// doneRun is a run as the equipment did it. All of its samples have numbers in a row.
type doneRun struct {
	start, end  time.Time
	first, last int
}

// randomProcess returns what equipment sends of runs that follow each other, and the runs by ID. Samples
// are at whole periods, sent in groups; events are at them or between.
func randomProcess(random *rand.Rand, named bool, group int) ([]sending, map[string]doneRun) {
	var all []sending
	var rows [][]float64
	n := 0
	sample := func(count int) {
		for range count {
			n++
			rows = append(rows, []float64{float64(n)})
			if len(rows) == group {
				all = append(all, sending{samples: &message{number: int64(n), at: atSample(float64(n)), rows: rows}})
				rows = nil
			}
		}
	}
	runs := map[string]doneRun{}
	sample(1)
	for i := range 12 {
		sample(random.IntN(4))
		name, between := "", []float64{0, 0.3, 0.8}
		if named {
			name = fmt.Sprint("r", i)
		}
		starts := between[random.IntN(3)]
		d := doneRun{start: atSample(float64(n) + starts), first: n}
		if starts > 0 {
			d.first++
		}
		all = append(all, sending{event: &event{starts: true, at: d.start, identity: [5]string{name}}})

		sample(1 + random.IntN(8))
		d.last, d.end = n, atSample(float64(n)+between[random.IntN(3)])
		all = append(all, sending{event: &event{at: d.end, identity: [5]string{name}}})
		runs[contextName(name, d.start)] = d
	}
	sample(4 * group)
	return all, runs
}

// TestCutter_cuts: whatever messages equipment without a spool loses with its link, once its trace
// has begun, every run is taken whole, or is said to be incomplete, or has its start and its end in
// gaps that are reported.
func TestCutter_cuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5000) {
		random := rand.New(rand.NewPCG(seed, 2))
		named := random.IntN(2) == 0
		all, runs := randomProcess(random, named, 1+random.IntN(4))
		c := &cutter{chamber: defender.Chamber{Tool: "t", Name: "c"}, plan: Chamber{Sensors: []string{"n"}, Period: Duration(period)}}
		toLose := 0 // messages, until the link is up again
		down := false
		for i, s := range all {
			if c.began && toLose == 0 && random.IntN(8) == 0 {
				toLose, down = random.IntN(6), true
			}
			if toLose > 0 && i < len(all)-3 { // the last messages arrive
				toLose--
				continue
			}
			if down {
				c.linkFailed()
				down = false
			}
			if s.samples != nil {
				c.message(*s.samples)
			} else if err := c.event(*s.event); err != nil {
				t.Fatal(err)
			}
		}
		c.stop("the end")
		if fault := faultOfCuts(c, runs); fault != "" {
			t.Fatalf("seed %d, named %t: %s", seed, named, fault)
		}
	}
}

// faultOfCuts compares what a cutter says with the runs that were done; "" if it is right.
func faultOfCuts(c *cutter, runs map[string]doneRun) string {
	said := map[string]bool{}
	var incomplete []defender.ContextRef
	_, outcomes, texts := c.take()
	for _, o := range outcomes {
		said[o.Ref.ID] = true
		if o.Trace == nil {
			texts = append(texts, o.Reason)
			incomplete = append(incomplete, o.Ref)
			continue
		}
		d, ok := runs[o.Ref.ID]
		values := o.Trace.Values[0]
		if !ok || !o.Ref.Start.Equal(d.start) || !o.Ref.End.Equal(d.end) || len(values) != d.last-d.first+1 || int(values[0]) != d.first {
			return fmt.Sprintf("run %s is taken from %s to %s with %v, but was %+v", o.Ref.ID, o.Ref.Start, o.Ref.End, values, d)
		}
	}
	for id, d := range runs {
		// A run without a name whose start is lost is called by its end, or is taken for the end of
		// a run whose own end may be missing, as is said.
		unnamed := func(r defender.ContextRef) bool { return r.End.Equal(d.end) && r.Start.Before(d.start) }
		ended := said[contextName("", d.end)] || slices.ContainsFunc(incomplete, unnamed)
		unseen := inGap(texts, d.start) && inGap(texts, d.end)
		if !said[id] && !ended && !unseen {
			return fmt.Sprintf("run %s, from %s to %s, is not taken, and nothing says so: %q", id, d.start, d.end, texts)
		}
	}
	return ""
}

// inGap reports whether one of the texts says that an event of a time may be missing.
func inGap(texts []string, at time.Time) bool {
	for _, text := range texts {
		for _, said := range gap.FindAllStringSubmatch(text, -1) {
			from, err := time.Parse(time.RFC3339, said[1])
			to, err2 := time.Parse(time.RFC3339, said[2])
			if err == nil && err2 == nil && !at.Before(from) && !at.After(to) {
				return true
			}
		}
	}
	return false
}
