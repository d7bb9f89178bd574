package console

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Load says how the messages of the worker plane come and go.
type Load struct {
	At      time.Time `json:"at"`
	Error   string    `json:"error,omitempty"`  // why the rest is missing
	Waiting uint64    `json:"waiting"`          // messages that are stored and not processed
	Oldest  time.Time `json:"oldest,omitzero"`  // when the oldest of them was stored
	In      *float64  `json:"in,omitempty"`     // messages stored per second; nil: not known
	Out     *float64  `json:"out,omitempty"`    // messages processed per second; nil: not known
	P50     *float64  `json:"p50Ms,omitempty"`  // median time to process one message, in milliseconds; nil: none was
	P99     *float64  `json:"p99Ms,omitempty"`  // its 99th percentile, in milliseconds
	Alarms  int       `json:"alarms,omitempty"` // open ones
}

// age returns for how long the oldest message has waited.
func (l Load) age() time.Duration {
	if l.Waiting == 0 || l.Oldest.IsZero() {
		return 0
	}
	return max(l.At.Sub(l.Oldest), 0)
}

// Backlog is what the samples of the last minutes say of the load.
type Backlog struct {
	Load
	// Since is when messages began to wait for longer than a moment, without a break; zero if they don't.
	Since time.Time `json:"since,omitzero"`
	// Growth is by how many messages per second the backlog grows, over Over; negative if it shrinks.
	Growth float64       `json:"growth"`
	Over   time.Duration `json:"overNs"`
	State  string        `json:"state"` // one of the constants below
	Text   string        `json:"text"`  // the same as a sentence
}

// The states of a backlog.
const (
	Keeping    = "enough"     // what comes is processed
	Behind     = "behind"     // messages wait, and the backlog shrinks
	Growing    = "not enough" // messages wait, and the backlog doesn't shrink
	NotMeasure = "unknown"    // there are too few samples
)

// Limits of what the samples are judged by.
const (
	moment       = 2 * time.Second // that a message may wait without being behind
	growthOver   = 5 * time.Minute
	leastSamples = 2
)

// backlogOf judges samples, oldest first. Capacity is enough as long as no message waits for longer than a moment: the
// backlog of one sample depends on the batch that came just before it.
func backlogOf(samples []Load) Backlog {
	if len(samples) == 0 {
		return Backlog{State: NotMeasure, Text: "Nothing has been measured yet."}
	}
	last := samples[len(samples)-1]
	b := Backlog{Load: last, State: NotMeasure}
	for i := len(samples) - 1; i >= 0 && samples[i].age() > moment; i-- {
		b.Since = samples[i].At
		if began := samples[i].Oldest; began.Before(b.Since) && i == 0 {
			b.Since = began
		}
	}

	from := last.At.Add(-growthOver)
	if b.Since.After(from) {
		from = b.Since // what was before is of another course
	}
	first := last
	for i := len(samples) - 1; i >= 0 && !samples[i].At.Before(from); i-- {
		first = samples[i]
	}
	if b.Over = last.At.Sub(first.At); b.Over > 0 {
		b.Growth = (float64(last.Waiting) - float64(first.Waiting)) / b.Over.Seconds()
	}
	b.judge(len(samples))
	return b
}

func (b *Backlog) judge(samples int) {
	const noise = 0.1 // messages per second
	switch {
	case b.Error != "":
		b.Text = "The load can't be read: " + b.Error
	case samples < leastSamples:
		b.Text = "There is only one sample yet."
	case b.Since.IsZero():
		b.State, b.Text = Keeping, "Capacity is enough: no message waits for longer than 2 s."
	case b.Growth < -noise:
		b.State = Behind
		b.Text = fmt.Sprintf("The workers catch up: the backlog shrinks by %.1f messages per second.", -b.Growth)
		if left := time.Duration(float64(b.Waiting) / -b.Growth * float64(time.Second)); left < 24*time.Hour {
			b.Text += fmt.Sprintf(" At this rate it is gone in %s.", left.Round(time.Second))
		}
	case b.Over > 0:
		b.State = Growing
		b.Text = fmt.Sprintf("Capacity is not enough: messages wait, and the backlog grows by %.1f messages per second.", max(b.Growth, 0))
	default:
		b.Text = "Messages wait. There are too few samples to say whether the backlog grows."
	}
}

// loadKept is how many samples are kept: a day of them.
func loadKept(every time.Duration) int { return max(int(24*time.Hour/every), 2) }

// sample measures the load until ctx ends, whether or not somebody looks: what happened at night is asked for in the morning.
func (c *Console) sample(ctx context.Context) {
	for {
		wait := c.o.Sample
		if !c.measure(ctx) { // as at the start, when there is nothing to measure yet
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// measure takes a sample. It reports whether there was anything to measure.
func (c *Console) measure(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v, err := c.o.Load(ctx)
	if v.At.IsZero() {
		v.At = time.Now()
	}
	if err != nil {
		v.Error = err.Error()
	}
	if c.o.Alarms != nil {
		if n, err := c.o.Alarms(ctx); err == nil {
			v.Alarms = n.Open
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if v.Error == "" { // what was not measured is no sample
		c.loads.add(v)
	}
	b := backlogOf(c.loads.last(int(growthOver/c.o.Sample) + leastSamples))
	if v.Error != "" {
		b.State, b.Error = NotMeasure, v.Error
		b.Text = "The load can't be read: " + v.Error
	}
	c.seen.load = encode(b)
	c.version++
	for p := range c.pages {
		signal(p.wake)
	}
	return err == nil
}

// loadPoints is how many points a request for the past load is answered with, at most.
const loadPoints = 240

// getLoad returns the samples of a time, thinned: of those that fall together the one with the most waiting messages.
func (c *Console) getLoad(w http.ResponseWriter, r *http.Request) {
	if c.o.Load == nil {
		problem(w, http.StatusNotFound, "this console measures no load")
		return
	}
	during, err := periodOf(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "%v", err)
		return
	}
	c.mu.Lock()
	all := c.loads.last(c.loads.limit)
	c.mu.Unlock()
	found := []Load{}
	for _, l := range all {
		if during.holds(l.At) {
			found = append(found, l)
		}
	}
	reply(w, thinned(found, loadPoints))
}

func thinned(all []Load, most int) []Load {
	if len(all) <= most {
		return all
	}
	out := make([]Load, 0, most)
	for i := range most {
		part := all[i*len(all)/most : (i+1)*len(all)/most]
		worst := part[0]
		for _, l := range part[1:] {
			if l.Waiting > worst.Waiting {
				worst = l
			}
		}
		out = append(out, worst)
	}
	return out
}

// period is a part of time; a zero end is open.
type period struct{ from, to time.Time }

func (p period) holds(t time.Time) bool {
	return (p.from.IsZero() || !t.Before(p.from)) && (p.to.IsZero() || !t.After(p.to))
}

// periodOf reads the times from and to of a request.
func periodOf(r *http.Request) (p period, err error) {
	for name, into := range map[string]*time.Time{"from": &p.from, "to": &p.to} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		if *into, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return p, fmt.Errorf("%s is %q: give a time as 2026-01-31T02:10:00Z", name, text)
		}
	}
	return p, nil
}

// numberOf reads a number of a request between least and most, or returns what stands for none.
func numberOf(r *http.Request, name string, none, least, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return none, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s is %q: give a number from %d to %d", name, text, least, most)
	}
	return n, nil
}
