package uchart

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Statistic is one of the numbers computed for each SVID and recipe step.
type Statistic uint8

// The statistics, in the order in which a [Chart] stores them. Units are those
// of the sensor, except where noted.
const (
	Count  Statistic = iota // samples used; no unit
	Mean                    // arithmetic mean
	StdDev                  // sample standard deviation (n-1); needs 2 samples
	Min                     // smallest sample
	Max                     // largest sample
	Range                   // Max - Min
	Slope                   // least squares against time, unit/s; needs 2 distinct times
	Area                    // trapezoids over time, unit*s; needs 2 samples
)

// NumStatistics is the number of statistics of each SVID and step.
const NumStatistics = 8

var statisticNames = [NumStatistics]string{"count", "mean", "stddev", "min", "max", "range", "slope", "area"}

// String returns the lower-case name, such as "mean".
func (s Statistic) String() string {
	if int(s) < len(statisticNames) {
		return statisticNames[s]
	}
	return fmt.Sprintf("statistic(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler].
func (s Statistic) MarshalText() ([]byte, error) {
	if int(s) >= len(statisticNames) {
		return nil, fmt.Errorf("unknown statistic %d", uint8(s))
	}
	return []byte(statisticNames[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Statistic) UnmarshalText(text []byte) error {
	for i, name := range statisticNames {
		if name == string(text) {
			*s = Statistic(i)
			return nil
		}
	}
	return fmt.Errorf("unknown statistic %q", text)
}

// Quality tells how good the trace behind a chart was.
type Quality struct {
	Rows     int     // samples of the trace, of each SVID
	BadTime  int     // rows without a finite timestamp, excluded
	Backward int     // rows earlier than a row before them, excluded
	Missing  int     // NaN and infinite sensor values in the other rows, excluded
	Gaps     int     // intervals longer than gapFactor times the mean interval
	Duration float64 // from the first to the last accepted row, s
	Longest  float64 // longest interval between accepted rows, s
}

// Chart is the U-chart of one context: the statistics of every SVID in every
// recipe step, packed. Steps without any sample of an SVID have count 0 and no
// other valid statistic.
type Chart struct {
	SVIDs   []string // in the order of the trace
	Steps   []int32  // ascending
	Quality Quality

	// Values holds NumStatistics numbers for each cell, and Valid one bit for
	// each of them (1<<statistic); cell i is SVID i/len(Steps) in step
	// i%len(Steps). What isn't valid is 0.
	Values []float64
	Valid  []uint8
}

// Cell returns the index of an SVID and a step, both given by their position.
func (c *Chart) Cell(svid, step int) int { return svid*len(c.Steps) + step }

// Value returns one statistic, and false when it isn't valid, as the standard
// deviation of a single sample.
func (c *Chart) Value(svid, step int, s Statistic) (float64, bool) {
	cell := c.Cell(svid, step)
	return c.Values[cell*NumStatistics+int(s)], c.Valid[cell]&(1<<s) != 0
}

// Limits of a decoded chart.
const (
	maxSVIDs     = 1 << 14
	maxSteps     = 1 << 12
	maxCells     = 1 << 20
	maxNameBytes = 1 << 10
)

// Validate reports whether c is consistent: sizes that fit, ascending steps,
// and finite values, 0 where not valid.
func (c *Chart) Validate() error {
	cells := len(c.SVIDs) * len(c.Steps)
	switch {
	case len(c.SVIDs) > maxSVIDs:
		return fmt.Errorf("chart has %d SVIDs, at most %d are allowed", len(c.SVIDs), maxSVIDs)
	case len(c.Steps) > maxSteps:
		return fmt.Errorf("chart has %d steps, at most %d are allowed", len(c.Steps), maxSteps)
	case cells > maxCells:
		return fmt.Errorf("chart has %d cells, at most %d are allowed", cells, maxCells)
	case len(c.Valid) != cells, len(c.Values) != cells*NumStatistics:
		return fmt.Errorf("chart of %d SVIDs and %d steps has %d values and %d masks", len(c.SVIDs), len(c.Steps), len(c.Values), len(c.Valid))
	}
	for _, name := range c.SVIDs {
		if len(name) > maxNameBytes {
			return fmt.Errorf("SVID name has %d bytes, at most %d are allowed", len(name), maxNameBytes)
		}
	}
	for i := 1; i < len(c.Steps); i++ {
		if c.Steps[i] <= c.Steps[i-1] {
			return fmt.Errorf("steps of a chart are not ascending: %d after %d", c.Steps[i], c.Steps[i-1])
		}
	}
	for i, v := range c.Values {
		valid := c.Valid[i/NumStatistics]&(1<<(i%NumStatistics)) != 0
		if valid && (math.IsNaN(v) || math.IsInf(v, 0)) || !valid && math.Float64bits(v) != 0 {
			return fmt.Errorf("chart value %d is %v, which doesn't fit valid=%t", i, v, valid)
		}
	}
	return nil
}

var chartMagic = [4]byte{'M', 'U', 'C', 1} // the last byte is the version

// AppendBinary appends the packed form of c to b: magic and version, then
// varints and little-endian words, then the xxHash64 of all before it. It
// implements [encoding.BinaryAppender].
func (c *Chart) AppendBinary(b []byte) ([]byte, error) {
	if err := c.Validate(); err != nil {
		return b, err
	}
	start := len(b)
	b = append(b, chartMagic[:]...)
	b = binary.AppendUvarint(b, uint64(len(c.SVIDs)))
	for _, name := range c.SVIDs {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Steps)))
	for _, step := range c.Steps {
		b = binary.AppendVarint(b, int64(step))
	}
	q := &c.Quality
	for _, n := range []int{q.Rows, q.BadTime, q.Backward, q.Missing, q.Gaps} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(q.Duration))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(q.Longest))
	for cell, mask := range c.Valid {
		b = append(b, mask)
		for s := range NumStatistics {
			if mask&(1<<s) != 0 {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(c.Values[cell*NumStatistics+s]))
			}
		}
	}
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b[start:])), nil
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (c *Chart) MarshalBinary() ([]byte, error) {
	return c.AppendBinary(make([]byte, 0, 128+len(c.Values)*9))
}

// ErrCorrupt says that the bytes are not a chart that AppendBinary wrote.
var ErrCorrupt = errors.New("corrupt U-chart")

// UnmarshalBinary reads the form written by AppendBinary. Bytes that are not
// exactly that give an error matching [ErrCorrupt] and leave c unspecified.
func (c *Chart) UnmarshalBinary(data []byte) error {
	if len(data) < len(chartMagic)+8 || [3]byte(data) != [3]byte(chartMagic[:3]) {
		return fmt.Errorf("%w: not a U-chart", ErrCorrupt)
	}
	if data[3] != chartMagic[3] {
		return fmt.Errorf("%w: version %d is not known here, only %d", ErrCorrupt, data[3], chartMagic[3])
	}
	body := data[:len(data)-8]
	if xxhash.Sum64(body) != binary.LittleEndian.Uint64(data[len(body):]) {
		return fmt.Errorf("%w: checksum doesn't match", ErrCorrupt)
	}
	r := byteReader{data: body[len(chartMagic):]}
	r.chart(c)
	if r.failed || len(r.data) != 0 {
		return fmt.Errorf("%w: lengths don't match", ErrCorrupt)
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// byteReader takes values off the front of data; after the first that isn't
// there it is failed and yields zeros.
type byteReader struct {
	data   []byte
	failed bool
}

func (r *byteReader) chart(c *Chart) {
	c.SVIDs = make([]string, r.count(maxSVIDs, 1))
	for i := range c.SVIDs {
		c.SVIDs[i] = string(r.take(r.count(maxNameBytes, 1)))
	}
	c.Steps = make([]int32, r.count(maxSteps, 1))
	for i := range c.Steps {
		c.Steps[i] = int32(r.varint())
	}
	q := &c.Quality
	for _, n := range []*int{&q.Rows, &q.BadTime, &q.Backward, &q.Missing, &q.Gaps} {
		*n = int(r.varint())
	}
	q.Duration, q.Longest = r.float(), r.float()
	cells := len(c.SVIDs) * len(c.Steps)
	if r.failed || cells > len(r.data) { // a cell takes a byte at least
		r.failed = true
		return
	}
	c.Valid = make([]uint8, cells)
	c.Values = make([]float64, cells*NumStatistics)
	for cell := range c.Valid {
		mask := r.byte()
		c.Valid[cell] = mask
		for s := range NumStatistics {
			if mask&(1<<s) != 0 {
				c.Values[cell*NumStatistics+s] = r.float()
			}
		}
	}
}

// count reads a length of things that take at least size bytes each.
func (r *byteReader) count(limit, size int) int {
	n, used := binary.Uvarint(r.data)
	if used <= 0 || n > uint64(limit) || n*uint64(size) > uint64(len(r.data)-used) {
		r.failed, r.data = true, nil
		return 0
	}
	r.data = r.data[used:]
	return int(n)
}

func (r *byteReader) varint() int64 {
	n, used := binary.Varint(r.data)
	if used <= 0 {
		r.failed, r.data = true, nil
		return 0
	}
	r.data = r.data[used:]
	return n
}

func (r *byteReader) take(n int) []byte {
	if n > len(r.data) {
		r.failed, r.data = true, nil
		return nil
	}
	head := r.data[:n]
	r.data = r.data[n:]
	return head
}

func (r *byteReader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *byteReader) float() float64 {
	if b := r.take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// interval returns the mean interval between used rows in seconds.
func (q Quality) interval() float64 {
	return q.Duration / float64(max(q.used()-1, 1))
}

func (q Quality) used() int { return q.Rows - q.BadTime - q.Backward }

// restingSigma is by the chart alone.
func (c *Chart) restingSigma(svid, step int) float64 {
	digit := math.Inf(1)
	for _, s := range []Statistic{Min, Max} {
		if x, ok := c.Value(svid, step, s); ok {
			digit = min(digit, lastDigit(x))
		}
	}
	if math.IsInf(digit, 0) {
		return 0
	}
	return digit / digitSigmas
}
