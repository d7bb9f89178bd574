package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/muster-dev/muster/tchart"
)

// A process makes the runs of a chamber that nothing is wrong with. The unit of its
// levels is the standard deviation of a sensor from wafer to wafer: sigma.
type process struct {
	name   string
	target float64 // false alarms that the design allows, in percent; 0: none is set
	before float64 // that the first version of the decision layer had, in percent; 0: unknown
	// heldOut processes weren't looked at before the rules were final; seen ones have no aim, but
	// were.
	heldOut bool
	sensors int // default 20
	// lots is how many wafers a lot has; 0 is no lots. Unnamed lots are not told to the judge.
	lots    int
	unnamed bool
	// levels returns a function that sets the levels of the sensors of the next run, with newLot
	// at the first run of a lot.
	levels func(rng *rand.Rand, sensors int) func(levels []float64, newLot bool)
}

// processes are those of the page, in its order.
func processes() []process {
	return []process{
		{name: "independent normal", target: 1.2, before: 2.0, levels: independent(normal)},
		{name: "3 common factors", target: 1.2, before: 1.2, levels: factors(3)},
		{name: "t, 3 degrees of freedom", target: 2, before: 17, levels: independent(student(3))},
		{name: "AR(1) 0.5 from run to run", target: 2, before: 8, levels: autoregressive(0.5)},
		{name: "AR(1) 0.8 from run to run", target: 3, before: 52, levels: autoregressive(0.8)},
		{name: "lots of 25, lot sd 1 sigma", target: 2, before: 47, lots: 25, levels: lots(1)},
		{name: "lots of 25, lot sd 2 sigma", target: 2, before: 99, lots: 25, levels: lots(2)},
		{name: "random walk, 0.2 sigma per run", target: 2, before: 33, levels: walk(0.2)},

		{name: "AR(1) 0.65 from run to run", levels: autoregressive(0.65)},
		{name: "lots of 12, lot sd 1.5 sigma", lots: 12, levels: lots(1.5)},
		{name: "lots of 25, lot sd 1 sigma, not named", lots: 25, unnamed: true, levels: lots(1)},
		{name: "t, 5 degrees of freedom", levels: independent(student(5))},
		{name: "log-normal", levels: independent(logNormal)},
		{name: "2 common factors, 8 sensors", sensors: 8, levels: factors(2)},
		{name: "AR(1) 0.6 of one common factor", levels: slowFactor(0.6)},

		{name: "AR(1) 0.4, 12 sensors", heldOut: true, sensors: 12, levels: autoregressive(0.4)},
		{name: "lots of 15, lot sd 0.7 sigma", heldOut: true, lots: 15, levels: lots(0.7)},
		{name: "t, 4 degrees of freedom, 12 sensors", heldOut: true, sensors: 12, levels: independent(student(4))},
		{name: "exponential", heldOut: true, levels: independent(exponential)},
		{name: "4 common factors, 30 sensors", heldOut: true, sensors: 30, levels: factors(4)},
		{name: "random walk, 0.1 sigma per run", heldOut: true, levels: walk(0.1)},
		{name: "AR(1) 0.7 of one common factor, 10 sensors", heldOut: true, sensors: 10, levels: slowFactor(0.7)},
	}
}

// normal, student, logNormal and exponential draw values of mean 0 and standard deviation 1.
func normal(rng *rand.Rand) float64 { return rng.NormFloat64() }

func student(freedom int) func(*rand.Rand) float64 {
	unit := math.Sqrt(float64(freedom-2) / float64(freedom))
	return func(rng *rand.Rand) float64 {
		squares := 0.0
		for range freedom {
			x := rng.NormFloat64()
			squares += float64(x * x)
		}
		return unit * rng.NormFloat64() / math.Sqrt(squares/float64(freedom))
	}
}

// logNormal is skewed like a leak rate or a particle count: the logarithm has standard
// deviation 0.5.
func logNormal(rng *rand.Rand) float64 {
	const s = 0.5
	mean := math.Exp(s * s / 2)
	return (math.Exp(s*rng.NormFloat64()) - mean) / (mean * math.Sqrt(math.Expm1(s*s)))
}

// exponential is more skewed than log-normal.
func exponential(rng *rand.Rand) float64 { return rng.ExpFloat64() - 1 }

func independent(draw func(*rand.Rand) float64) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, _ int) func([]float64, bool) {
		return func(levels []float64, _ bool) {
			for i := range levels {
				levels[i] = draw(rng)
			}
		}
	}
}

// factors has sensors that follow common factors in four fifths of their variance.
func factors(n int) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, sensors int) func([]float64, bool) {
		loads := loadings(rng, sensors, n)
		common := make([]float64, n)
		return func(levels []float64, _ bool) {
			for f := range common {
				common[f] = rng.NormFloat64()
			}
			mix(rng, levels, loads, common)
		}
	}
}

// slowFactor has one common factor in four fifths of the variance that is autocorrelated,
// while the rest of each sensor is not.
func slowFactor(phi float64) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, sensors int) func([]float64, bool) {
		loads := loadings(rng, sensors, 1)
		common := []float64{rng.NormFloat64()}
		return func(levels []float64, _ bool) {
			common[0] = phi*common[0] + math.Sqrt(1-phi*phi)*rng.NormFloat64()
			mix(rng, levels, loads, common)
		}
	}
}

const commonShare = 0.8 // of a sensor's variance

// loadings returns a row of unit length for each sensor.
func loadings(rng *rand.Rand, sensors, n int) [][]float64 {
	loads := make([][]float64, sensors)
	for i := range loads {
		loads[i] = make([]float64, n)
		squares := 0.0
		for f := range n {
			loads[i][f] = rng.NormFloat64()
			squares += float64(loads[i][f] * loads[i][f])
		}
		for f := range n {
			loads[i][f] /= math.Sqrt(squares)
		}
	}
	return loads
}

func mix(rng *rand.Rand, levels []float64, loads [][]float64, common []float64) {
	for i := range levels {
		levels[i] = math.Sqrt(1-commonShare) * rng.NormFloat64()
		for f, c := range common {
			levels[i] += math.Sqrt(commonShare) * loads[i][f] * c
		}
	}
}

// autoregressive has sensors that are autocorrelated from run to run, each by itself.
func autoregressive(phi float64) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, sensors int) func([]float64, bool) {
		at := make([]float64, sensors)
		for i := range at {
			at[i] = rng.NormFloat64()
		}
		return func(levels []float64, _ bool) {
			for i := range at {
				at[i] = phi*at[i] + math.Sqrt(1-phi*phi)*rng.NormFloat64()
			}
			copy(levels, at)
		}
	}
}

// lots adds to each sensor what the wafers of a lot have in common.
func lots(sd float64) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, sensors int) func([]float64, bool) {
		lot := make([]float64, sensors)
		return func(levels []float64, newLot bool) {
			for i := range levels {
				if newLot {
					lot[i] = sd * rng.NormFloat64()
				}
				levels[i] = lot[i] + rng.NormFloat64()
			}
		}
	}
}

// walk adds a random walk to each sensor: a chamber that seasons.
func walk(step float64) func(*rand.Rand, int) func([]float64, bool) {
	return func(rng *rand.Rand, sensors int) func([]float64, bool) {
		at := make([]float64, sensors)
		return func(levels []float64, _ bool) {
			for i := range levels {
				at[i] += step * rng.NormFloat64()
				levels[i] = at[i] + rng.NormFloat64()
			}
		}
	}
}

// The traces of all processes.
const (
	defaultSensors = 20
	steps          = 2
	rowsPerStep    = 25
)

// A chamber makes the traces of one chamber's runs.
type chamber struct {
	process process
	rng     *rand.Rand
	next    func(levels []float64, newLot bool)
	bases   []float64 // of each sensor
	svids   []string
	runs    int
}

func newChamber(p process, seed uint64, number int) *chamber {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", p.name, number)
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	if p.sensors == 0 {
		p.sensors = defaultSensors
	}

	c := &chamber{process: p, rng: rng, bases: make([]float64, p.sensors)}
	for i := range c.bases {
		c.bases[i] = 100 + 900*rng.Float64()
		c.svids = append(c.svids, fmt.Sprintf("sensor %02d", i+1))
	}
	c.next = p.levels(rng, p.sensors)
	return c
}

// run is a trace of a chamber with the lot that the judge is told.
type run struct {
	trace *tchart.Trace
	lot   string
}

// draw makes the next run: a level of each sensor for the whole run, and noise of 1 sigma
// on each sample.
func (c *chamber) draw() run {
	lot := 0
	if c.process.lots > 0 {
		lot = c.runs / c.process.lots
	}
	newLot := c.process.lots > 0 && c.runs%c.process.lots == 0
	levels := make([]float64, len(c.bases))
	c.next(levels, newLot)
	c.runs++

	t := &tchart.Trace{SVIDs: c.svids, Values: make([][]float64, len(levels))}
	for i := range steps * rowsPerStep {
		t.Time = append(t.Time, float64(i))
		t.Step = append(t.Step, int32(1+i/rowsPerStep))
	}
	for i, level := range levels {
		column := make([]float64, len(t.Time))
		for row := range column {
			column[row] = c.bases[i] + level + c.rng.NormFloat64()
		}
		t.Values[i] = column
	}
	if c.process.lots == 0 || c.process.unnamed {
		return run{trace: t}
	}
	return run{trace: t, lot: fmt.Sprintf("lot%d", lot+1)}
}

// shifted returns the run with some of its sensors off by a number of sigmas.
func (r run) shifted(f fault) run {
	t := *r.trace
	t.Values = make([][]float64, len(t.Values))
	copy(t.Values, r.trace.Values)
	for i := range min(f.sensors, len(t.Values)) {
		column := make([]float64, len(t.Time))
		for row, x := range t.Values[i] {
			column[row] = x + f.sigmas
		}
		t.Values[i] = column
	}
	return run{trace: &t, lot: r.lot}
}

// fault is a shift of the levels of some sensors in all steps.
type fault struct {
	sensors int
	sigmas  float64
}

// faults are those that power is measured for. The first is none: what is "found" of it
// is false alarms.
func faults() []fault {
	list := []fault{{}}
	for _, sensors := range []int{1, 4} {
		for _, sigmas := range []float64{1, 2, 4, 8} {
			list = append(list, fault{sensors, sigmas})
		}
	}
	return list
}
