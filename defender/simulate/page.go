package main

import (
	"fmt"
	"io"
	"strings"
)

// page is docs/results/false-alarms.md.
type page struct {
	strategy string
	seed     uint64
	sizes    sizes
	rows     []row
	beside   map[string]figures // of the rules before, by process; nil if there are none
}

type row struct {
	process process
	figures figures
}

func (p *page) write(out io.Writer) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	line("# False alarms and power on simulated chambers\n")
	line("Written by `go run ./defender/simulate --markdown docs/results/false-alarms.md%s`. Don't edit it.\n", p.flags())
	line("Strategy: %s. Seed %d. %d chambers per process, %d runs per chamber, %d sensors (unless the name says otherwise), "+
		"%d steps of %d samples.\n", p.strategy, p.seed, p.sizes.chambers, p.sizes.runs, defaultSensors, steps, rowsPerStep)
	line("A *sigma* is the standard deviation of a sensor from wafer to wafer; each sample has noise of one sigma more. " +
		"Runs go through what a defender judges by: the trace's statistics, the strategy's verdict, and the history that follows from the verdicts before.\n")
	p.falseAlarms(line)
	p.protocol(line)
	p.power(line, "One faulty wafer", fmt.Sprintf("Share of single faulty wafers found, in percent. Each chamber gets one after every %d runs "+
		"from run %d on; it is judged and then forgotten. The column *none* is the same wafers without a fault.",
		p.sizes.probeEvery, p.sizes.probeFrom), func(f figures) []rate { return f.Wafer })
	p.power(line, fmt.Sprintf("Lasting faults found within %d runs", soon), fmt.Sprintf("Share of lasting faults that raise an alarm within %d runs, "+
		"in percent. They begin at runs %s.", soon, list(p.sizes.onsets)), func(f figures) []rate { return f.Soon })
	p.power(line, fmt.Sprintf("Lasting faults found within %d runs", p.sizes.lasting), "The same, with more patience. The column *none* is how often an undisturbed chamber raises an alarm meanwhile.",
		func(f figures) []rate { return f.Ever })
}

func (p *page) flags() string {
	flags := ""
	if p.beside != nil {
		flags += " --beside defender/simulate/testdata/before.json"
	}
	if p.seed != reportSeed {
		flags += fmt.Sprintf(" --seed %d", p.seed)
	}
	if p.sizes.chambers == quick.chambers {
		flags += " --quick"
	}
	return flags
}

func (p *page) falseAlarms(line func(string, ...any)) {
	line("## False alarms\n")
	line("Share of judged runs with an alarm, in percent; learning runs don't count. The interval is at 95 %% and allows for runs of a chamber that depend on each other. " +
		"*First measured* are figures of another program for runs 51 to 100, which set the aims. *Seen* processes have no aim, but were looked at while rules were chosen; *held out* ones were not.\n")
	before, rule := "", ""
	if p.beside != nil {
		before, rule = " before |", " ---: |"
	}
	line("| process | aim | first measured |%s false alarms | interval | runs to 50 | 51-100 | from 101 | single charts | T² | Q | aim met |", before)
	line("| --- | ---: | ---: |%s ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |", rule)
	for _, r := range p.rows {
		f := r.figures
		cells := []string{r.process.name, percent(r.process.target), percent(r.process.before)}
		if r.process.heldOut {
			cells[1] = "held out"
		} else if r.process.target == 0 {
			cells[1] = "seen"
		}
		if p.beside != nil {
			cells = append(cells, p.beside[r.process.name].Rate.String())
		}
		cells = append(cells, "**"+f.Rate.String()+"**", f.Rate.interval(), f.Phases[0].String(), f.Phases[1].String(), f.Phases[2].String(),
			f.Single.String(), f.T2.String(), f.Q.String(), met(r))
		line("| %s |", strings.Join(cells, " | "))
	}
	line("")
}

// protocol says what was chosen by what.
func (p *page) protocol(line func(string, ...any)) {
	line("## What was chosen by what\n")
	line("- Rules and their constants were chosen by seed 1 and the processes with an aim or marked *seen*. The page has seed %d. "+
		"Its held-out processes were written when the rules were final, but for the number of charts that a course is concluded from, which came later, for speed.", reportSeed)
	line("- Courses of single charts (rules 7) came later, for [a continuous plant](tennessee-eastman.md). Their constant was set beforehand. " +
		"A first form gave the walk of 0.2 sigma 2.2 %% with this page's seed, so wandering statistics had none until rules 8, which follow such charts faster: that row and this seed are no longer held out. " +
		"Rules 6 had 0.7 %% for AR(1) 0.8, 1.3 %% for that walk and 4.4 %% for exponential; no other row moved by more than 0.1.")
	line("- The recorded [etches](etch.md) were looked at seven times meanwhile: no rule was kept by which the default strategy finds fewer faults there.")
	line("- *Before* are the rules without courses and tails, by the same program, seeds and runs.")
	line("- A second implementation with NumPy and SciPy, by the same author, has the same share of false alarms for independent normal runs, " +
		"t with 3 degrees of freedom, and AR(1) 0.5, within 3 standard errors: `go test ./defender/simulate -run Independent -v`.\n")
	heavy(line)
	line("**Lots without names** look like wandering levels, and the first wafers of a lot like faults. Name lots in completion messages. A shift from the first wafer of a lot on, as at run 151 with lots of 25, is found only if it is larger than lots differ.\n")
	line("**Power is lost with false alarms.** What *before* found of small shifts in dependent processes is mostly false alarms: compare with its column *none*. " +
		"Lasting small shifts of a wandering chamber are followed and raise no alarm; the verdict's `courses` says so, and its `drift` once they are 3 sigmas from Phase I. By seed 3, 12 of 12 chambers that walk 0.2 sigma per run report drift, from run 66 to 116 on, and none of 36 chambers with independent runs, AR(1) 0.5 or lots: `go test ./defender/simulate -run Drift -v`.\n")
}

// heavy compares the rules for heavy tails with those before.
func heavy(line func(string, ...any)) {
	line("**Heavy tails** (rules 8). Limits of few values are too narrow: by limits that it is part of, a value is never far out. Hill's estimate of the tail overshot where values are hardly more than normal, or was left out. " +
		"And one value far out was most of T² or Q. So tails now rest on values judged by all others and have Tukey's shape, frozen limits allow for the estimate's error, and variables in T² and Q are bounded by 3.5 robust sigmas. " +
		"By this page's seed:\n")
	line("| process | false alarms, rules 7 → 8 | one wafer, 1 sensor, 8σ | one wafer, 4 sensors, 4σ |")
	line("| --- | --- | --- | --- |")
	for _, r := range heavyTails {
		line("| %s | %s | %s | %s |", r[0], r[1], r[2], r[3])
	}
	line("\nThe price is power against a fault in one sensor, and part of it can't be avoided: with t of 3 degrees of freedom known exactly, limits for 20 sensors with 1 %% false alarms are at 9.4 sigmas, and find 5 %% of shifts by 8; with 2 %%, about 75 %%. With t of 5 degrees of freedom and log-normal values known exactly, 97 %% would be found with 1 %%: what is missing there is the price of learning from 50 runs. " +
		"Rules 8 were chosen by seed 1 and four of the processes that were seen; this page's seed was run once, when they were final. Compared by seed 1, where they have 1.7 %% for that process: in-sample distances and Hill's estimate, 3.5 %%; no allowance for the error, 2.3 %%; a bound of 4, 2.0 %%; of 3, which finds 67 instead of 77 %% of shifts by 4 in 4 sensors, 1.8 %% with a tail of 20 instead of 10 runs. " +
		"The allowance in limits that move, too, had 1.8 %%, but found 9 instead of 11 of 14 recorded etch faults in their order.\n")
}

// met reports whether the aim is met, and doubts that when the interval includes both.
func met(r row) string {
	aim := r.process.target / 100
	switch f := r.figures.Rate; {
	case aim == 0:
		return ""
	case f.high <= aim:
		return "yes"
	case f.low > aim:
		return "**no**"
	case f.share() <= aim:
		return "yes, within error"
	default:
		return "no, within error"
	}
}

func percent(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%g", x)
}

// power writes a table of faults found.
func (p *page) power(line func(string, ...any), title, what string, of func(figures) []rate) {
	line("## %s\n", title)
	if p.beside != nil {
		what += " The first number is that of the rules before, the second that of these."
	}
	line("%s\n", strings.ReplaceAll(what, "%", "%%"))
	header, rule := "| process |", "| --- |"
	for _, f := range faults() {
		header += " " + f.String() + " |"
		rule += " ---: |"
	}
	line("%s", header)
	line("%s", rule)
	for _, r := range p.rows {
		cells := r.process.name
		for i, rate := range of(r.figures) {
			cells += " | "
			if before := of(p.beside[r.process.name]); before != nil {
				cells += before[i].whole() + " → "
			}
			cells += rate.whole()
		}
		line("| %s |", cells)
	}
	line("")
}

func (f fault) String() string {
	switch f.sensors {
	case 0:
		return "none"
	case 1:
		return fmt.Sprintf("1 sensor, %gσ", f.sigmas)
	}
	return fmt.Sprintf("%d sensors, %gσ", f.sensors, f.sigmas)
}

// whole is in percent without decimals.
func (r rate) whole() string {
	if r.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*r.share())
}

func list(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = fmt.Sprint(n)
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// heavyTails is the measured price of rules 8.
var heavyTails = [][4]string{
	{"*independent normal*", "0.4 → 0.4 %", "100 → 100 %", "95 → 93 %"},
	{"*t, 3 degrees of freedom*", "6.7 → **1.8 %**", "92 → 23 %", "94 → 82 %"},
	{"*t, 5 degrees of freedom*", "3.6 → 2.8 %", "95 → 71 %", "94 → 84 %"},
	{"*log-normal*", "4.5 → 1.6 %", "86 → 33 %", "89 → 78 %"},
	{"*t, 4 degrees of freedom, 12 sensors* (held out)", "5.2 → 3.3 %", "98 → 76 %", "97 → 92 %"},
	{"*exponential* (held out)", "4.7 → 1.4 %", "75 → 23 %", "83 → 64 %"},
}
