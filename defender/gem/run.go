package gem

import (
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/tchart"
)

// Outcome is what became of a run: a T-chart that is whole, or a reason why there is none.
type Outcome struct {
	Ref    defender.ContextRef
	Trace  *tchart.Trace // nil if the run is incomplete
	Reason string        // why it is
}

// openRun is a run that has started and whose samples are not all there yet.
type openRun struct {
	ref    defender.ContextRef
	named  bool // by the equipment, so that its end is told from another's
	ended  bool // ref.End is known
	reason string
	time   []float64
	step   []int32
	values [][]float64 // by sensor
}

// fail notes why a run is incomplete; the first reason stays.
func (r *openRun) fail(reason string) {
	if r.reason == "" {
		r.reason = reason
		r.time, r.step, r.values = nil, nil, nil // nobody will read them
	}
}

// wants reports whether a sample of a time belongs to the run.
func (r *openRun) wants(at time.Time) bool {
	over := r.ended && at.After(r.ref.End)
	return r.reason == "" && !at.Before(r.ref.Start) && !over
}

// add appends a sample: the sensors' values, and the step's last if there is one.
func (r *openRun) add(s sample, hasStep bool) {
	sensors := len(s.values)
	step := int32(1)
	if hasStep {
		sensors--
		v := s.values[sensors]
		step = int32(v)
		if float64(step) != v {
			r.fail("the step of the sample at " + stamp(s.at) + " is no number of a step")
			return
		}
	}
	if (len(r.time)+1)*(sensors+2) > ingest.MaxNumbers {
		r.fail("it has more numbers than defenders take: give a longer period, or fewer sensors")
		return
	}
	if r.values == nil {
		r.values = make([][]float64, sensors)
	}
	r.time = append(r.time, s.at.Sub(r.ref.Start).Seconds())
	r.step = append(r.step, step)
	for i, v := range s.values[:sensors] {
		r.values[i] = append(r.values[i], v)
	}
}

// trim removes samples after the end, which is known now.
func (r *openRun) trim() {
	last := r.ref.End.Sub(r.ref.Start).Seconds()
	n := len(r.time)
	for n > 0 && r.time[n-1] > last {
		n--
	}
	r.time, r.step = r.time[:n], r.step[:n]
	for i := range r.values {
		r.values[i] = r.values[i][:n]
	}
}

// outcome returns what became of the run.
func (r *openRun) outcome(sensors []string) Outcome {
	if r.reason == "" && len(r.time) == 0 {
		r.fail("no sample was taken between its start and its end")
	}
	if r.reason != "" {
		if !r.ended {
			r.ref.End = r.ref.Start
		}
		return Outcome{Ref: r.ref, Reason: r.reason}
	}
	c := r.ref
	return Outcome{Ref: c, Trace: &tchart.Trace{
		Tool: c.Chamber.Tool, Chamber: c.Chamber.Name, Context: c.ID, Recipe: c.Recipe, Product: c.Product, Lot: c.Lot, Wafer: c.Wafer,
		SVIDs: sensors, Time: r.time, Step: r.step, Values: r.values,
	}}
}

// stamp writes a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.00Z") }

// contextName returns the name of a run as keys may have it, and the time of its start for a run
// without one.
func contextName(text string, start time.Time) string {
	if text == "" {
		return start.UTC().Format("20060102T150405.00Z")
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:+=@", r) {
			return r
		}
		return '_'
	}, text)
	return name[:min(len(name), 128)]
}
