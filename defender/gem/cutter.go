package gem

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/defender"
)

// event is the start or the end of a run, as its report says.
type event struct {
	starts   bool
	at       time.Time // by the equipment's clock
	identity [5]string // run, recipe, product, lot, wafer
}

// sample is a row of the trace.
type sample struct {
	at     time.Time
	values []float64
}

// message is one S6F1: samples of which the last has this number and time.
type message struct {
	number int64
	at     time.Time
	rows   [][]float64
}

// lookBack is how many messages of samples are kept for the start event of a run that comes
// later than they do: equipment may send both side by side.
const lookBack = 64

// remembered is how many finished runs are known, so that an event that comes again is
// recognized. Equipment sends it again when it didn't see the reply.
const remembered = 64

// cutter cuts the runs of a chamber out of its trace. It has no clock: all times are the
// equipment's.
type cutter struct {
	chamber defender.Chamber
	plan    Chamber

	runs     []*openRun // in the order of their start; only the last may lack its end
	finished []defender.ContextRef

	began  bool      // there was a message of the trace
	number int64     // of its last sample
	at     time.Time // of its last sample
	since  time.Time // the samples from then on are all in recent or were given to the open runs
	recent []sample
	unsure bool // an event after that sample may be lost: the link failed, and there is no spool

	// What happened since take: outcomes of runs, runs that started, and what else people
	// should know.
	outcomes []Outcome
	started  []defender.ContextRef
	notices  []string
}

// take returns what happened, and forgets it.
func (c *cutter) take() (started []defender.ContextRef, outcomes []Outcome, notices []string) {
	started, outcomes, notices = c.started, c.outcomes, c.notices
	c.started, c.outcomes, c.notices = nil, nil, nil
	return started, outcomes, notices
}

func (c *cutter) notice(format string, args ...any) {
	c.notices = append(c.notices, fmt.Sprintf(format, args...))
}

// refOf returns the run that an event is of. What keys can't have is replaced.
func (c *cutter) refOf(e event) (defender.ContextRef, error) {
	ref := defender.ContextRef{
		Chamber: c.chamber, ID: contextName(e.identity[0], e.at), Recipe: e.identity[1], Product: e.identity[2],
		Lot: e.identity[3], Wafer: e.identity[4], Start: e.at, End: e.at,
	}
	if err := ref.Validate(); err != nil {
		return ref, fmt.Errorf("the report of the event says no run: %w", err)
	}
	return ref, nil
}

// event handles a start or an end. The error is of a report that says no run.
func (c *cutter) event(e event) error {
	ref, err := c.refOf(e)
	if err != nil {
		return err
	}
	if e.starts {
		c.start(ref, e.identity[0] != "")
	} else {
		c.end(ref, e.identity[0] != "")
	}
	c.finish()
	return nil
}

// start handles the start of a run.
func (c *cutter) start(ref defender.ContextRef, named bool) {
	again := func(r defender.ContextRef) bool { return r.Start.Equal(ref.Start) && r.ID == ref.ID }
	if slices.ContainsFunc(c.finished, again) || slices.ContainsFunc(c.runs, func(r *openRun) bool { return again(r.ref) }) {
		return
	}
	if last := c.unended(); last != nil {
		last.fail(fmt.Sprintf("its end was not reported before the next run, %s, started at %s", ref.ID, stamp(ref.Start)))
		last.ended, last.ref.End = true, ref.Start
		if ref.Start.Before(last.ref.Start) { // by a clock that went back
			last.ref.End = last.ref.Start
		}
	}

	run := &openRun{ref: ref, named: named}
	c.runs = append(c.runs, run)
	c.started = append(c.started, ref)
	if c.began && ref.Start.Before(c.since) {
		run.fail("samples are missing before " + stamp(c.since))
		return
	}
	for _, s := range c.recent {
		if run.wants(s.at) {
			run.add(s, c.plan.Step != "")
		}
	}
}

// unended returns the run whose end is not known; nil if there is none.
func (c *cutter) unended() *openRun {
	if n := len(c.runs); n > 0 && !c.runs[n-1].ended {
		return c.runs[n-1]
	}
	return nil
}

// end handles the end of a run, which has the name of its start if it is named at all.
func (c *cutter) end(ref defender.ContextRef, named bool) {
	again := func(r defender.ContextRef) bool { return r.End.Equal(ref.End) && (!named || r.ID == ref.ID) }
	if slices.ContainsFunc(c.finished, again) || slices.ContainsFunc(c.runs, func(r *openRun) bool { return r.ended && again(r.ref) }) {
		return
	}
	run := c.unended()
	if run == nil || named && run.ref.ID != ref.ID || ref.End.Before(run.ref.Start) {
		c.outcomes = append(c.outcomes, Outcome{Ref: ref, Reason: "it ended at " + stamp(ref.End) + " and its start was not reported"})
		c.remember(ref)
		return
	}
	run.ended, run.ref.End = true, ref.End
	run.trim()
}

func (c *cutter) remember(ref defender.ContextRef) {
	if len(c.finished) == remembered {
		c.finished = slices.Delete(c.finished, 0, 1)
	}
	c.finished = append(c.finished, ref)
}

// message handles samples of the trace.
func (c *cutter) message(m message) {
	if len(m.rows) == 0 || c.repeated(m) {
		return
	}
	samples := c.samples(m)
	for _, s := range samples {
		for _, run := range c.runs {
			if run.wants(s.at) {
				run.add(s, c.plan.Step != "")
			}
		}
	}
	c.keep(samples)
	c.began, c.number, c.at = true, m.number, m.at
	c.finish()
}

// keep remembers samples for a while. A run that started before those is incomplete.
func (c *cutter) keep(samples []sample) {
	c.recent = append(c.recent, samples...)
	more := len(c.recent) - lookBack*len(samples)
	if more <= 0 {
		return
	}
	if forgotten := c.recent[more-1].at; !forgotten.Before(c.since) {
		c.since = forgotten.Add(1)
	}
	c.recent = slices.Delete(c.recent, 0, more)
}

// repeated reports whether a message was taken before.
func (c *cutter) repeated(m message) bool {
	return c.began && m.number <= c.number && !m.at.After(c.at)
}

// samples returns a message's samples with their times, after it has noted a hole before them.
func (c *cutter) samples(m message) []sample {
	n := len(m.rows)
	period := time.Duration(c.plan.Period)
	hole := c.hole(m)
	// The last sample's time is known. The others are spread evenly since the message
	// before, so that times never go back.
	apart := period
	if hole == "" {
		apart = m.at.Sub(c.at) / time.Duration(n)
	}
	samples := make([]sample, n)
	for i, row := range m.rows {
		samples[i] = sample{at: m.at.Add(-time.Duration(n-1-i) * apart), values: row}
	}
	linkFailed := c.unsure
	c.unsure = false
	if hole == "" {
		if linkFailed {
			c.notice("the link failed between %s and %s, and the equipment has no spool: the start or the end of a run may be missing", stamp(c.at), stamp(m.at))
		}
		return samples
	}

	// The last sample that is known to be missing was taken a period before these. Where none is
	// known to be, a run that starts up to a period before its first sample misses none.
	c.since = samples[0].at.Add(-period / 2)
	if missing := c.began && m.number-int64(n) > c.number; !missing {
		c.since = c.since.Add(-period)
	}
	c.recent = nil
	for _, run := range c.runs {
		if run.ref.Start.Before(c.since) || run.ref.Start.After(m.at) {
			run.fail(hole)
		}
	}
	// Also if an open run has it as its reason: that may have ended within, and others too.
	if c.began {
		c.notice("%s; the start or the end of a run may be missing too", hole)
	}
	return samples
}

// hole says what is missing before a message; empty if nothing is.
func (c *cutter) hole(m message) string {
	n := int64(len(m.rows))
	period := time.Duration(c.plan.Period)
	late := 2*time.Duration(n)*period + 1500*time.Millisecond
	since := m.at.Sub(c.at) - time.Duration(n-1)*period // to the first of these samples
	switch {
	case !c.began:
		return "the trace began at " + stamp(m.at) + ", after its start"
	case m.number-n < c.number && since > 0 && since <= period+period/2:
		return "" // it began again in time
	case m.number-n < c.number:
		return fmt.Sprintf("the trace began again at %s; its last sample before was number %d of %s", stamp(m.at), c.number, stamp(c.at))
	case m.number-n != c.number:
		return fmt.Sprintf("samples %d to %d, between %s and %s, are missing", c.number+1, m.number-n, stamp(c.at), stamp(m.at))
	case m.at.Before(c.at):
		return fmt.Sprintf("the equipment's clock went back from %s to %s", stamp(c.at), stamp(m.at))
	case m.at.Sub(c.at) > late:
		return fmt.Sprintf("the equipment took no sample between %s and %s, or its clock jumped", stamp(c.at), stamp(m.at))
	}
	return ""
}

// lost notes that messages of the trace are lost for a reason, which no number shows. It reports
// whether that ends a run as incomplete.
func (c *cutter) lost(reason string) bool {
	for _, run := range c.runs {
		run.fail(reason)
	}
	return len(c.runs) > 0
}

// linkFailed notes that the link to equipment without a spool failed. An event may be lost then
// although no sample is, and a run whose start and end are both lost leaves no other sign.
func (c *cutter) linkFailed() {
	c.unsure = c.began
	if run := c.unended(); run != nil && !run.named {
		run.fail("the link failed during the run, and its end may be missing: runs have no names, so that the end of the next one would be taken for it")
	}
}

// finish gives away the runs that have ended and lack nothing any more.
func (c *cutter) finish() {
	c.runs = slices.DeleteFunc(c.runs, func(run *openRun) bool {
		// All samples up to the end are there when one of the end, or of after it, is. Of a run
		// that is incomplete no more are wanted.
		done := run.ended && (run.reason != "" || c.began && !c.at.Before(run.ref.End))
		if done {
			c.outcomes = append(c.outcomes, run.outcome(c.plan.Sensors))
			c.remember(run.ref)
		}
		return done
	})
}

// stop gives away what is open as incomplete.
func (c *cutter) stop(reason string) {
	for _, run := range c.runs {
		run.fail(reason)
		c.outcomes = append(c.outcomes, run.outcome(c.plan.Sensors))
	}
	c.runs = nil
}
