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
		"*First measured* are the figures for runs 51 to 100 that set off this work. *Held out* processes had no part in choosing any rule.\n")
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
			cells[1], cells[2] = "held out", ""
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
