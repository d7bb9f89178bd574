package uchart

import (
	"fmt"
	"slices"
)

// The constants of data quality.
const (
	minCounts   = 3    // earlier contexts needed to judge counts
	minSamples  = 5    // samples usual in a step below which a sensor's count there isn't judged
	shortStep   = 0.5  // a step with fewer samples, compared to the median, is truncated
	longStep    = 2    // and with more, overlong
	maxExcluded = 0.1  // share of rows that may be excluded
	maxMissing  = 0.1  // share of values that may be missing
	maxGap      = 0.25 // longest interval, as a share of the duration
	maxDead     = 0.5  // share of SVIDs that may be unusable before the whole context is
)

// quality is what is wrong with the data of a context.
type quality struct {
	faults  []string      // of the context as a whole, which isn't judged then
	sensors []sensorFault // of single SVIDs; the others are judged
}

type sensorFault struct{ svid, what string }

func (s sensorFault) String() string { return fmt.Sprintf("SVID %q %s", s.svid, s.what) }

// inspect compares a chart with what is sound by itself and usual by the points.
// Nothing is wrong with excluded SVIDs.
func inspect(points []Point, chart *Chart, excluded []string) quality {
	var q quality
	q.faults = timeFaults(chart.Quality)
	if chart.Quality.used() == 0 {
		return q
	}
	q.values(chart)
	if len(points) >= minCounts {
		q.compare(points, chart)
	}
	q.sensors = slices.DeleteFunc(q.sensors, func(s sensorFault) bool { return slices.Contains(excluded, s.svid) })
	known := len(chart.SVIDs)
	if len(points) > 0 {
		known = max(known, len(points[len(points)-1].Chart.SVIDs))
	}
	if n := len(q.sensors); float64(n) > maxDead*float64(known) {
		q.faults = append(q.faults, fmt.Sprintf("%d of %d SVIDs can't be used, the first: %s", n, known, q.sensors[0]))
		q.sensors = nil
	}
	return q
}

// list returns all faults, for a person.
func (q *quality) list() []string {
	list := slices.Clone(q.faults)
	for _, s := range q.sensors {
		list = append(list, s.String())
	}
	return list
}

// svids returns the SVIDs that can't be judged.
func (q *quality) svids() []string {
	var svids []string
	for _, s := range q.sensors {
		svids = append(svids, s.svid)
	}
	return svids
}

// sensor adds the first fault of an SVID.
func (q *quality) sensor(svid, format string, args ...any) {
	if !slices.ContainsFunc(q.sensors, func(s sensorFault) bool { return s.svid == svid }) {
		q.sensors = append(q.sensors, sensorFault{svid, fmt.Sprintf(format, args...)})
	}
}

// timeFaults are those that need neither values nor history.
func timeFaults(q Quality) []string {
	used := q.used()
	if used == 0 {
		return []string{"there is no sample with a usable time"}
	}
	var faults []string
	if used > 1 && q.Duration == 0 {
		faults = append(faults, fmt.Sprintf("all of %d samples have the same time", used))
	}
	if excluded := q.Rows - used; float64(excluded) > maxExcluded*float64(q.Rows) && excluded > 1 {
		faults = append(faults, fmt.Sprintf("%d of %d rows have no time or one before an earlier row's", excluded, q.Rows))
	}
	if q.Gaps > 0 && q.Longest > maxGap*q.Duration {
		faults = append(faults, fmt.Sprintf("nothing was recorded for %.4g s of %.4g s", q.Longest, q.Duration))
	}
	return faults
}

// values finds values that are missing or too large. Missing ones are those of the SVIDs
// that lack most: some may be sampled less often than others.
func (q *quality) values(c *Chart) {
	used := c.Quality.used()
	if values := used * len(c.SVIDs); float64(c.Quality.Missing) > maxMissing*float64(values) {
		var dead []int
		for svid := range c.SVIDs {
			if 2*c.samples(svid) < used {
				dead = append(dead, svid)
			}
		}
		if len(dead) == 0 || float64(len(dead)) > maxDead*float64(len(c.SVIDs)) {
			q.faults = append(q.faults, fmt.Sprintf("%d of %d values are missing", c.Quality.Missing, values))
			return
		}
		for _, svid := range dead {
			q.sensor(c.SVIDs[svid], "lacks %d of %d values", used-c.samples(svid), used)
		}
	}
	for svid, name := range c.SVIDs {
		for step, number := range c.Steps {
			if n, _ := c.Value(svid, step, Count); n == 0 {
				continue
			}
			if _, ok := c.Value(svid, step, Mean); !ok {
				q.sensor(name, "has values in step %d that are too large to compute with", number)
				break
			}
		}
	}
}

// compare finds steps and SVIDs that differ from the history.
func (q *quality) compare(points []Point, chart *Chart) {
	usual := map[int32]float64{} // of steps that are as usual
	for _, step := range knownSteps(points, chart) {
		counts := make([]float64, len(points))
		for i := range points {
			point := &points[i]
			counts[i] = samples(point.Chart, step)
		}
		m := median(counts)
		switch n := samples(chart, step); {
		case m > 0 && n == 0:
			q.faults = append(q.faults, fmt.Sprintf("step %d is missing, usually it has %g samples", step, m))
		case m == 0 && n > 0:
			q.faults = append(q.faults, fmt.Sprintf("step %d is usually not there, now it has %g samples", step, n))
		case n < shortStep*m || n > longStep*m:
			q.faults = append(q.faults, fmt.Sprintf("step %d has %g samples, usually %g", step, n, m))
		default:
			usual[step] = m
		}
	}
	for _, svid := range points[len(points)-1].Chart.SVIDs {
		switch at := slices.Index(chart.SVIDs, svid); {
		case at < 0:
			q.sensor(svid, "is missing")
		case chart.samples(at) == 0 && mostlyMeasured(points, svid):
			q.sensor(svid, "has no value")
		default:
			q.steps(points, chart, at, usual)
		}
	}
}

// steps finds steps in which an SVID has fewer samples than it used to.
func (q *quality) steps(points []Point, chart *Chart, svid int, usual map[int32]float64) {
	for step, number := range chart.Steps {
		n, _ := chart.Value(svid, step, Count)
		if m, ok := usual[number]; !ok || n >= shortStep*m {
			continue // a sensor has no more samples than its step, so neither has its median
		}
		counts := make([]float64, len(points))
		for i := range points {
			point := &points[i]
			l := newLayout(chart, point.Chart)
			counts[i], _ = l.value(point.Chart, svid, step, Count)
		}
		if m := median(counts); m >= minSamples && n < shortStep*m {
			q.sensor(chart.SVIDs[svid], "has %g samples in step %d, usually %g", n, number, m)
			return
		}
	}
}

// samples returns how many samples an SVID has in all steps.
func (c *Chart) samples(svid int) int {
	n := 0.0
	for step := range c.Steps {
		count, _ := c.Value(svid, step, Count)
		n += count
	}
	return int(n)
}

func mostlyMeasured(points []Point, svid string) bool {
	n := 0
	for _, point := range points {
		if at := slices.Index(point.Chart.SVIDs, svid); at >= 0 && point.Chart.samples(at) > 0 {
			n++
		}
	}
	return 2*n > len(points)
}

func knownSteps(points []Point, chart *Chart) []int32 {
	steps := slices.Clone(chart.Steps)
	for _, point := range points {
		steps = append(steps, point.Chart.Steps...)
	}
	slices.Sort(steps)
	return slices.Compact(steps)
}

// samples returns how many samples a step has, that of the SVID with most.
func samples(c *Chart, step int32) float64 {
	at, found := slices.BinarySearch(c.Steps, step)
	if !found {
		return 0
	}
	most := 0.0
	for cell := at; cell < len(c.Valid); cell += len(c.Steps) { // that step of each SVID
		if n := c.Values[cell*NumStatistics+int(Count)]; n > most {
			most = n
		}
	}
	return most
}

// without returns the chart less some SVIDs; it shares nothing that is changed.
func (c *Chart) without(svids []string) *Chart {
	if len(svids) == 0 {
		return c
	}
	out := &Chart{Steps: c.Steps, Quality: c.Quality}
	for svid, name := range c.SVIDs {
		if slices.Contains(svids, name) {
			continue
		}
		from, to := c.Cell(svid, 0), c.Cell(svid, len(c.Steps))
		out.SVIDs = append(out.SVIDs, name)
		out.Valid = append(out.Valid, c.Valid[from:to]...)
		out.Values = append(out.Values, c.Values[from*NumStatistics:to*NumStatistics]...)
	}
	return out
}

// median returns the lower median; it changes the order of xs.
func median(xs []float64) float64 { return ranked(xs, (len(xs)-1)/2) }
