package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/muster-dev/muster/tchart"
)

// Generator makes wafers that look like those of a plasma etcher: 19 sensors in
// two recipe steps, about 100 samples about a second apart. Sensors have a level
// in each step, noise that remembers the sample before, a level of their own for
// each wafer, and drift slowly as the chamber ages until it is cleaned. Readings
// come in the steps in which such sensors are read out.
//
// Everything follows from the fields: wafer n is the same whenever and in
// whatever order it is asked for. The zero value is ready.
type Generator struct {
	Seed uint64 // different seeds make chambers with different levels
	// FaultRate is the share of wafers with a fault, from 0 to 1. Which wafers
	// and which fault follow from the seed.
	FaultRate float64
	// CleanEvery is the number of wafers after which the drift starts again;
	// default 500.
	CleanEvery int
}

// A sensor is how one SVID behaves.
type sensor struct {
	name    string
	level   [2]float64 // in the two steps
	noise   [2]float64 // standard deviation of a sample
	memory  float64    // correlation with the sample before
	wafer   float64    // standard deviation between wafers
	chamber float64    // standard deviation between chambers
	drift   float64    // over CleanEvery wafers
	readout float64    // smallest difference between readings
	settle  float64    // added at the start of each step, fading over 4 samples
	bump    [2]float64 // height of a plateau in each step, as of an optical emission
	min     float64    // smallest reading
}

const anything = -1e9 // as sensor.min

var sensors = [...]sensor{
	{"BCl3 Flow", [2]float64{751.6, 751.8}, [2]float64{0.5, 0.4}, 0.1, 0.05, 0.1, 0, 1, 0, [2]float64{}, 0},
	{"Cl2 Flow", [2]float64{753.2, 753.3}, [2]float64{0.8, 0.7}, 0, 0.05, 0.1, 0, 1, 0, [2]float64{}, 0},
	{"RF Btm Pwr", [2]float64{133.2, 133.3}, [2]float64{1.8, 1.3}, 0, 0.1, 0.3, 0, 1, 0, [2]float64{}, 0},
	{"RF Btm Rfl Pwr", [2]float64{0.06, 0.06}, [2]float64{0.2, 0.2}, 0, 0.01, 0, 0, 1, 0, [2]float64{}, 0},
	{"Endpt A", [2]float64{1000, 1050}, [2]float64{6, 5}, 0.3, 12, 150, -60, 1, 60, [2]float64{1900, 690}, 0},
	{"He Press", [2]float64{100.6, 100.7}, [2]float64{0.7, 0.7}, 0, 0.08, 0.3, 0, 1, 0, [2]float64{}, 0},
	{"Pressure", [2]float64{1185, 1185}, [2]float64{5, 4}, 0.2, 0.3, 3, 0, 1, 70, [2]float64{}, 0},
	{"RF Tuner", [2]float64{9465, 9470}, [2]float64{30, 36}, 0, 4, 40, 15, 1, 0, [2]float64{}, 0},
	{"RF Load", [2]float64{9027, 8993}, [2]float64{34, 38}, 0.1, 3, 40, 10, 1, 0, [2]float64{}, 0},
	{"RF Phase Err", [2]float64{-1228, -195}, [2]float64{900, 650}, 0.2, 60, 100, 0, 1, 0, [2]float64{}, anything},
	{"RF Pwr", [2]float64{27.5, 26.4}, [2]float64{0.8, 0.7}, 0.5, 0.15, 1, -1, 1, 2, [2]float64{}, 0},
	{"RF Impedance", [2]float64{16600, 16600}, [2]float64{220, 260}, 0.2, 30, 60, 0, 1, 0, [2]float64{}, 0},
	{"TCP Tuner", [2]float64{19500, 19700}, [2]float64{60, 60}, 0.3, 12, 80, -40, 2, 300, [2]float64{-200, -500}, 0},
	{"TCP Phase Err", [2]float64{-12, -6}, [2]float64{470, 370}, 0.1, 20, 20, 0, 1, 0, [2]float64{}, anything},
	{"TCP Impedance", [2]float64{16570, 16550}, [2]float64{330, 180}, 0, 25, 60, 0, 2, 0, [2]float64{}, 0},
	{"TCP Top Pwr", [2]float64{349.3, 349.3}, [2]float64{4.8, 4.3}, 0, 0.3, 0.5, 0, 1, 0, [2]float64{}, 0},
	{"TCP Rfl Pwr", [2]float64{0.3, 0.15}, [2]float64{0.45, 0.33}, 0, 0.03, 0, 0, 1, 0, [2]float64{}, 0},
	{"TCP Load", [2]float64{27650, 27500}, [2]float64{70, 70}, 0.3, 9, 80, 30, 2, 0, [2]float64{180, 420}, 0},
	{"Vat Valve", [2]float64{49.5, 50.7}, [2]float64{0.35, 0.3}, 0.4, 0.05, 0.4, 0.5, 1, 0, [2]float64{}, 0},
}

// A fault is a wrong setting of which the sensor of the setting itself knows
// nothing, since it is what is off; others respond.
type fault struct {
	name   string
	shifts []shift
}

type shift struct {
	sensor string
	level  float64 // added to the level
	noise  float64 // factor of the noise; 0 stands for 1
}

var faults = [...]fault{
	{"TCP +50", []shift{{"Endpt A", 260, 0}, {"RF Load", -130, 0}, {"RF Tuner", -27, 0}, {"TCP Tuner", -400, 0}, {"TCP Load", 220, 0}, {"RF Impedance", -150, 0}}},
	{"TCP +30", []shift{{"Endpt A", 200, 0}, {"RF Load", -88, 0}, {"TCP Tuner", -230, 0}, {"TCP Load", 170, 0}, {"RF Impedance", -120, 0}}},
	{"TCP -20", []shift{{"Endpt A", -150, 0}, {"RF Load", 55, 0}, {"RF Pwr", 2, 0}, {"TCP Tuner", 150, 0}, {"TCP Load", -105, 0}}},
	{"RF +10", []shift{{"RF Tuner", 22, 0}, {"RF Load", 11, 0}, {"RF Phase Err", -500, 0}, {"RF Pwr", 0.8, 0}, {"RF Impedance", -110, 0}}},
	{"RF -12", []shift{{"RF Tuner", -24, 0}, {"RF Load", -35, 0}, {"RF Phase Err", 300, 0}, {"RF Pwr", -1.5, 0}, {"Vat Valve", -0.5, 0}}},
	{"Pr +3", []shift{{"Vat Valve", -4.1, 0}, {"Pressure", 8, 3}, {"RF Load", 160, 0}, {"RF Tuner", 83, 0}, {"TCP Load", 235, 0}, {"Endpt A", -73, 0}}},
	{"Pr -2", []shift{{"Vat Valve", 5, 0}, {"Pressure", -5, 3}, {"RF Load", -100, 0}, {"TCP Load", -115, 0}, {"Endpt A", 27, 0}}},
	{"Cl2 +5", []shift{{"Vat Valve", 0.9, 0}, {"Pressure", 1, 1.6}, {"Endpt A", -21, 0}}},
	{"Cl2 -5", []shift{{"Vat Valve", -0.9, 0}, {"Pressure", -1, 1.6}}},
	{"BCl3 +5", []shift{{"Vat Valve", 0.5, 0}, {"Pressure", 1, 1.8}, {"Endpt A", 11, 0}}},
	{"BCl3 -5", []shift{{"Vat Valve", -0.5, 0}, {"BCl3 Flow", 24, 0}}},
	{"He Chuck", []shift{{"He Press", 0.2, 2.2}, {"RF Tuner", 11, 0}}},
}

// Faults returns the names of the faults that can be made: settings of the
// plasma source (TCP), the bottom electrode (RF), the pressure (Pr), the gases
// and the helium under the wafer, with how far they are off.
func Faults() []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
	}
	return names
}

// Wafer returns wafer n, 0 or more, with a fault if it is one of those that
// have one. Its trace has a context and wafer number; tool and chamber are left
// to the caller.
func (g *Generator) Wafer(n int) *Wafer {
	rng := rand.New(rand.NewPCG(g.Seed, uint64(n)<<1))
	if rng.Float64() < g.FaultRate {
		return g.wafer(n, &faults[rng.IntN(len(faults))])
	}
	return g.wafer(n, &fault{})
}

// FaultyWafer returns wafer n with the given fault, one of [Faults].
func (g *Generator) FaultyWafer(n int, name string) (*Wafer, error) {
	at := slices.IndexFunc(faults[:], func(f fault) bool { return f.name == name })
	if at < 0 {
		return nil, fmt.Errorf("there is no fault %q: the faults are %q", name, Faults())
	}
	return g.wafer(n, &faults[at]), nil
}

func (g *Generator) wafer(n int, f *fault) *Wafer {
	rng := rand.New(rand.NewPCG(g.Seed, uint64(n)<<1|1))
	w := &Wafer{Set: "generated", Fault: f.name}
	t := &w.Trace
	t.Context = fmt.Sprintf("g%016x-%06d", g.Seed, n)
	t.Recipe = "generated-etch"
	t.Lot, t.Wafer = fmt.Sprintf("lot%05d", n/25), strconv.Itoa(n%25+1)
	firstStep := 46 + rng.IntN(5)
	rows := firstStep + 51 + rng.IntN(5)
	clock(t, rng, rows, firstStep)
	chamber := rand.New(rand.NewPCG(g.Seed, 1<<63))
	for i := range sensors {
		s := &sensors[i]
		offset := s.chamber*chamber.NormFloat64() + s.drift*g.age(n) + s.wafer*rng.NormFloat64()
		noise := 1.0
		for _, shift := range f.shifts {
			if shift.sensor == s.name {
				offset += shift.level
				noise = max(shift.noise, 1)
			}
		}
		t.SVIDs = append(t.SVIDs, s.name)
		t.Values = append(t.Values, s.column(rng, rows, firstStep, offset, noise))
	}
	return w
}

// age is how far the chamber is from its last cleaning to the next, 0 to 1.
func (g *Generator) age(n int) float64 {
	every := g.CleanEvery
	if every <= 0 {
		every = 500
	}
	return float64(n%every) / float64(every)
}

func clock(t *tchart.Trace, rng *rand.Rand, rows, firstStep int) {
	now := 9.6 + 2*rng.Float64()
	for i := range rows {
		t.Time = append(t.Time, math.Round(now*1e4)/1e4)
		step := int32(4)
		if i >= firstStep {
			step = 5
		}
		t.Step = append(t.Step, step)
		now += 1.02 + 0.001*float64(rng.IntN(5))
		if rng.IntN(12) == 0 {
			now += 0.05 * rng.Float64()
		}
	}
}

func (s *sensor) column(rng *rand.Rand, rows, firstStep int, offset, noise float64) []float64 {
	column := make([]float64, rows)
	memory, fresh := 0.0, math.Sqrt(1-s.memory*s.memory)
	for i := range column {
		step, at, length := 0, i, firstStep
		if i >= firstStep {
			step, at, length = 1, i-firstStep, rows-firstStep
		}
		memory = s.memory*memory + fresh*rng.NormFloat64()
		v := s.level[step] + offset + memory*s.noise[step]*noise
		v += s.settle * math.Exp(-float64(at)/1.5)
		v += s.bump[step] * plateau(float64(at)/float64(length), step)
		column[i] = max(s.min, math.Round(v/s.readout)*s.readout)
	}
	return column
}

// plateau rises early and, in the first step, falls again before the end, as
// the light of the plasma does when a layer is through.
func plateau(phase float64, step int) float64 {
	rise := 1 / (1 + math.Exp(-(phase-0.12-0.1*float64(step))*60))
	if step == 1 {
		return rise
	}
	return rise / (1 + math.Exp((phase-0.88)*60))
}

// Templates are encoded T-charts to be used again and again under other names,
// where more are needed than can be generated and encoded in the time.
type Templates struct {
	wafers  []*Wafer
	blobs   [][]byte
	decoder tchart.Decoder
}

// Templates returns the wafers first to first+n-1 as templates. They take part
// in no drift beyond theirs, as they repeat.
func (g *Generator) Templates(first, n int) (*Templates, error) {
	t := &Templates{}
	var enc tchart.Encoder
	for i := range n {
		w := g.Wafer(first + i)
		blob, err := enc.Append(nil, &w.Trace)
		if err == nil {
			// Leaves the header uncompressed, which makes the next time quicker.
			blob, err = t.decoder.Relabel(nil, blob, func(*tchart.Trace) {})
		}
		if err != nil {
			return nil, fmt.Errorf("encoding wafer %s, %w", w.Trace.Context, err)
		}
		t.wafers = append(t.wafers, w)
		t.blobs = append(t.blobs, blob)
	}
	return t, nil
}

// Len returns the number of templates.
func (t *Templates) Len() int { return len(t.wafers) }

// Wafer returns the wafer of template i, which must not be changed.
func (t *Templates) Wafer(i int) *Wafer { return t.wafers[i] }

// Append appends the blob of template i to dst, with the strings that label sets
// (see [tchart.Decoder.Relabel]). It isn't safe for concurrent use.
func (t *Templates) Append(dst []byte, i int, label func(t *tchart.Trace)) ([]byte, error) {
	return t.decoder.Relabel(dst, t.blobs[i], label)
}
