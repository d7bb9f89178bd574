package gem

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
)

// noon is the time of sample 0.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func atSample(n float64) time.Time { return noon.Add(time.Duration(n * float64(period))) }

// feed gives a cutter what a line says: "s 3" is sample 3, "s 3-7" a message with five,
// "start a 2.5" and "end a 9" are events, "restart 3-7" numbers from 1.
func feed(t *testing.T, c *cutter, line string) {
	t.Helper()
	var first, last int
	var at float64
	var name string
	number := func(n int) int64 { return int64(n) }
	switch fields := strings.Fields(line); fields[0] {
	case "restart":
		number = func(n int) int64 { return int64(n - first + 1) }
		fallthrough
	case "s":
		if n, _ := fmt.Sscanf(fields[1], "%d-%d", &first, &last); n == 1 {
			last = first
		}
		m := message{number: number(last), at: atSample(float64(last))}
		for n := first; n <= last; n++ {
			m.rows = append(m.rows, []float64{float64(n), float64(n/10 + 1)})
		}
		c.message(m)
	case "start", "end":
		if _, err := fmt.Sscanf(line, "%s %s %f", new(string), &name, &at); err != nil {
			t.Fatal(err)
		}
		if name == "-" {
			name = ""
		}
		if err := c.event(event{starts: fields[0] == "start", at: atSample(at), identity: [5]string{name}}); err != nil {
			t.Fatal(err)
		}
	case "lost":
		if !c.lost("not read") {
			c.notice("not read")
		}
	case "link":
		c.linkFailed()
	case "stop":
		c.stop("the end")
	default:
		t.Fatalf("what is %q?", line)
	}
}

// outcomesOf writes what became of runs: their samples, or why there are none.
func outcomesOf(c *cutter) []string {
	var texts []string
	_, outcomes, notices := c.take()
	for _, o := range outcomes {
		if o.Trace == nil {
			texts = append(texts, o.Ref.ID+" "+o.Reason)
			continue
		}
		v := o.Trace.Values[0]
		if len(v) != len(o.Trace.Step) || len(v) != len(o.Trace.Time) || int(o.Trace.Step[0]) != int(v[0])/10+1 {
			texts = append(texts, "its columns differ")
		}
		for i, s := range o.Trace.Time {
			if want := atSample(v[i]).Sub(o.Ref.Start).Seconds(); s != want {
				texts = append(texts, fmt.Sprintf("sample %v is at %v, want %v", v[i], s, want))
			}
		}
		texts = append(texts, fmt.Sprintf("%s %v-%v of %d", o.Ref.ID, v[0], v[len(v)-1], len(v)))
	}
	for _, n := range notices {
		said := func(o Outcome) bool { return n == o.Reason+"; the start or the end of a run may be missing too" }
		if slices.ContainsFunc(outcomes, said) {
			continue
		}
		texts = append(texts, "notice "+n)
	}
	return texts
}

func TestCutter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, lines string
		want        []string
	}{
		{"a run", "s 1|s 2|start a 2|s 3|s 4|end a 4|s 5", []string{"a 2-4 of 3"}},
		{"events between samples", "s 1|start a 1.5|s 2|s 3|end a 3.5|s 4", []string{"a 2-3 of 2"}},
		{"groups", "s 1-5|start a 3|s 6-10|end a 12|s 11-15", []string{"a 3-12 of 10"}},
		{"a start that comes after its samples", "s 1|s 2|s 3|start a 1.5|end a 3|s 4", []string{"a 2-3 of 2"}},
		{"an end that comes after later samples", "s 1|start a 1|s 2|s 3|s 4|end a 2.5", []string{"a 1-2 of 2"}},
		{"one run after the other", "s 1|start a 1|s 2|end a 2|start b 2|s 3|end b 3", []string{"a 1-2 of 2", "b 2-3 of 2"}},
		{"a run without a name", "s 1|start - 1|s 2|end - 2", []string{"20260301T120000.10Z 1-2 of 2"}},
		{"a trace that begins with the run", "start a 0.5|s 1|s 2|end a 2", []string{"a 1-2 of 2"}},

		{"messages that come again", "s 1|start a 1|start a 1|s 1|s 2|s 2|end a 2|end a 2|s 3|start a 1|end a 2", []string{"a 1-2 of 2"}},
		{"a group that comes again", "s 1-3|start a 2|s 1-3|s 4-6|s 4-6|end a 6|s 7-9", []string{"a 2-6 of 5"}},

		{"a hole within", "s 1|start a 1|s 2|s 5|end a 6|s 6", []string{"a samples 3 to 4, between 2026-03-01T12:00:00.20Z and 2026-03-01T12:00:00.50Z, are missing"}},
		{"a hole before its end", "s 1|start a 1|s 2|end a 3|s 5", []string{"a samples 3 to 4, between 2026-03-01T12:00:00.20Z and 2026-03-01T12:00:00.50Z, are missing"}},
		{"a hole at its start", "s 1|s 4|start a 2|s 5|end a 5", []string{"a samples are missing before 2026-03-01T12:00:00.35Z", "notice samples 2 to 3, between 2026-03-01T12:00:00.10Z and 2026-03-01T12:00:00.40Z, are missing; the start or the end of a run may be missing too"}},
		{"a hole that ends with the sample at its start", "s 1|s 3|start a 2|s 4|end a 4", []string{"a samples are missing before 2026-03-01T12:00:00.25Z", "notice samples 2 to 2, between 2026-03-01T12:00:00.10Z and 2026-03-01T12:00:00.30Z, are missing; the start or the end of a run may be missing too"}},
		{"a hole that ends before its start", "s 1|s 3|start a 2.6|s 4|end a 4", []string{"a 3-4 of 2", "notice samples 2 to 2, between 2026-03-01T12:00:00.10Z and 2026-03-01T12:00:00.30Z, are missing; the start or the end of a run may be missing too"}},
		{"a hole between runs", "s 1|start a 1|s 2|end a 2|s 5|start b 5|s 6|end b 6", []string{"a 1-2 of 2", "b 5-6 of 2", "notice samples 3 to 4, between 2026-03-01T12:00:00.20Z and 2026-03-01T12:00:00.50Z, are missing; the start or the end of a run may be missing too"}},
		{"a trace that begins later", "start a 1|s 5|end a 6|s 6", []string{"a the trace began at 2026-03-01T12:00:00.50Z, after its start"}},
		{"a trace that begins again in time", "s 10|start a 10|restart 11-12|end a 12", []string{"a 10-12 of 3"}},
		{"a trace that begins again", "s 10|start a 10|restart 12-12|end a 12", []string{"a the trace began again at 2026-03-01T12:00:01.20Z; its last sample before was number 10 of 2026-03-01T12:00:01.00Z"}},
		{"a trace that begins again with a group", "s 10|start a 10|restart 12-13|end a 13", []string{"a the trace began again at 2026-03-01T12:00:01.30Z; its last sample before was number 10 of 2026-03-01T12:00:01.00Z"}},
		{"a message that was not read", "s 1|start a 1|s 2|lost|s 3|end a 3", []string{"a not read"}},
		{"a link that failed, without a hole", "s 1|link|s 2|start a 2|s 3|link|end a 3|s 4", []string{"a 2-3 of 2",
			"notice the link failed between 2026-03-01T12:00:00.10Z and 2026-03-01T12:00:00.20Z, and the equipment has no spool: the start or the end of a run may be missing",
			"notice the link failed between 2026-03-01T12:00:00.30Z and 2026-03-01T12:00:00.40Z, and the equipment has no spool: the start or the end of a run may be missing"}},
		{"a link that failed, with a hole", "s 1|link|s 3", []string{"notice samples 2 to 2, between 2026-03-01T12:00:00.10Z and 2026-03-01T12:00:00.30Z, are missing; the start or the end of a run may be missing too"}},
		{"a link that failed in a run without a name", "s 1|start - 1|s 2|link|end - 3|s 3", []string{
			"20260301T120000.10Z the link failed during the run, and its end may be missing: runs have no names, so that the end of the next one would be taken for it",
			"notice the link failed between 2026-03-01T12:00:00.20Z and 2026-03-01T12:00:00.30Z, and the equipment has no spool: the start or the end of a run may be missing"}},
		{"a message that was not read, between runs", "s 1|lost", []string{"notice not read"}},

		{"no start", "s 1|s 2|end a 2|s 3", []string{"a it ended at 2026-03-01T12:00:00.20Z and its start was not reported"}},
		{"another's end", "s 1|start a 1|s 2|end b 2|end a 2", []string{"b it ended at 2026-03-01T12:00:00.20Z and its start was not reported", "a 1-2 of 2"}},
		{"no end", "s 1|start a 1|s 2|start b 2|s 3|end b 3", []string{"a its end was not reported before the next run, b, started at 2026-03-01T12:00:00.20Z", "b 2-3 of 2"}},
		{"no sample", "s 1|start a 1.2|end a 1.8|s 2", []string{"a no sample was taken between its start and its end"}},
		{"a host that ends", "s 1|start a 1|s 2|stop", []string{"a the end"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &cutter{chamber: defender.Chamber{Tool: "t", Name: "c"}, plan: Chamber{Sensors: []string{"n"}, Step: "step", Period: Duration(period)}}
			for line := range strings.SplitSeq(test.lines, "|") {
				feed(t, c, line)
			}
			if got := outcomesOf(c); !slices.Equal(got, test.want) {
				t.Errorf("it says\n%q, want\n%q", got, test.want)
			}
		})
	}
}

// TestCutter_forgets: a start whose samples are no longer there makes its run incomplete.
func TestCutter_forgets(t *testing.T) {
	t.Parallel()
	for start, want := range map[float64]string{
		40: "a samples are missing before", 137: "a 137-201 of 65",
	} {
		c := &cutter{chamber: defender.Chamber{Tool: "t", Name: "c"}, plan: Chamber{Sensors: []string{"n"}, Step: "step", Period: Duration(period)}}
		for n := range 200 {
			feed(t, c, fmt.Sprintf("s %d", n+1))
		}
		feed(t, c, fmt.Sprintf("start a %v", start))
		feed(t, c, "end a 201")
		feed(t, c, "s 201")
		if got := outcomesOf(c); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("a start at sample %v: %q, want %q", start, got, want)
		}
	}
}

// TestCutter_clock: a clock that jumps shows.
func TestCutter_clock(t *testing.T) {
	t.Parallel()
	for by, want := range map[time.Duration]string{
		-time.Hour: "the equipment's clock went back", time.Hour: "the equipment took no sample between",
	} {
		c := &cutter{chamber: defender.Chamber{Tool: "t", Name: "c"}, plan: Chamber{Sensors: []string{"n"}, Step: "step", Period: Duration(period)}}
		feed(t, c, "s 1")
		feed(t, c, "start a 1")
		c.message(message{number: 2, at: atSample(2).Add(by), rows: [][]float64{{2, 1}}})
		feed(t, c, "stop")
		if got := outcomesOf(c); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("a clock that goes by %v: %q, want %q", by, got, want)
		}
	}
}

func TestCutter_step(t *testing.T) {
	t.Parallel()
	c := &cutter{chamber: defender.Chamber{Tool: "t", Name: "c"}, plan: Chamber{Sensors: []string{"n"}, Step: "step", Period: Duration(period)}}
	feed(t, c, "start a 1")
	c.message(message{number: 1, at: atSample(1), rows: [][]float64{{1, 1.5}}})
	feed(t, c, "end a 1")
	if got := outcomesOf(c); len(got) != 1 || got[0] != "a the step of the sample at 2026-03-01T12:00:00.10Z is no number of a step" {
		t.Errorf("%q", got)
	}
}
