package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/muster-dev/muster/defender/strategy"
)

// aim is the share of false alarms that the design allows on an undisturbed plant, in percent.
const aim = 3.0

// writePage measures and writes docs/results/tennessee-eastman.md.
func writePage(out io.Writer, byLength map[float64][]course) error {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	set := strategy.Default()
	st, _ := set.Of(refOf(0, ""))
	line("# The Tennessee Eastman process\n")
	line("Written by `go run ./defender/tennessee --markdown docs/results/tennessee-eastman.md FILE...`. Don't edit it. " +
		"The files are those of `python defender/tennessee/generate.py SEED HOURS`, with the Python packages of `internal/component/tennessee/requirements.txt`.\n")
	line("A simulated chemical plant in closed loop: the revised model of Bathelt, Ricker and Jelali (2015) with Ricker's decentralized control, mode 1, by the PyPI package tep-studio 0.2.0. " +
		"Sensors are XMEAS 1 to 41 and XMV 1 to 11. After 30 h of warm-up, runs of 50 samples follow each other without a break, so they depend on each other. " +
		"Each disturbance begins after 60 undisturbed runs, in a copy of the plant.\n")
	line("Judged by the strategy %s, version %d, as a defender would. Plants are those of seeds 4 to 6 for runs of 2.5 h, and 10 to 15 for runs of 0.5 h. "+
		"**The runs of 0.5 h are held out**: rules were final before these plants were judged. Those of 2.5 h were judged before, and what was changed then doesn't concern them. "+
		"The length of runs was chosen before any was looked at.\n", st.Name, set.Version())
	line("*Plain PCA* is as textbooks have it: one model of the first %d runs, T² by F's distribution and Q by Box's, each for 0.5 %%. "+
		"*Of samples* takes each sample by itself, as papers on this process do; a run is an alarm if %d of its 50 samples are over a limit. "+
		"*Of runs* takes means and standard deviations of all sensors, which are more variables than it has runs.\n", learning, enough)

	lengths := slices.Sorted(maps.Keys(byLength))
	slices.Reverse(lengths)
	results := make([][]measured, len(lengths))
	for i, length := range lengths {
		for _, c := range byLength[length] {
			m, err := measure(&c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[i] = append(results[i], m)
		}
	}
	undisturbed(line, lengths, results)
	for i, length := range lengths {
		disturbances(line, length, results[i])
	}
	return nil
}

func hours(seconds float64) string { return fmt.Sprintf("%.3g h", seconds/3600) }

// undisturbed writes the false alarms.
func undisturbed(line func(string, ...any), lengths []float64, results [][]measured) {
	line("## False alarms of the undisturbed plant\n")
	line("The aim is at most %g %% of judged runs. Plain PCA, which learns until run %d, is judged from run %d on. Intervals are Clopper and Pearson's at 95 %%, as if runs were independent; they aren't, so the real ones are wider.\n", aim, learning, learning+1)
	line("| run | plant | learning runs | false alarms | aim met | up to run %d | from run %d on | by single charts, T², Q then | plain PCA of samples | samples over its limits | plain PCA of runs | means judged as |", learning, learning+1)
	line("| --- | ---: | ---: | --- | --- | --- | --- | --- | ---: | ---: | ---: | --- |")
	for i, length := range lengths {
		var early, late counts
		courses := map[string]int{}
		for k, m := range results[i] {
			row(line, hours(length), fmt.Sprint(k+1), m.early, m.late, m.courses)
			early.plus(m.early)
			late.plus(m.late)
			for course, n := range m.courses {
				courses[course] += n
			}
		}
		row(line, "**"+hours(length)+"**", "**all**", early, late, courses)
	}
	line("")
	for i, length := range lengths {
		causes(line, length, results[i])
	}
	line("\nSensors such as XMEAS 20 (compressor work) and 22 (separator cooling water) depend far longer on what was before than most. " +
		"Judged by the course of most sensors, they leave the limits for hours, and while an alarm stands limits follow nothing. " +
		"Since rules 7 such a sensor has a course of its own. " +
		"Rules 8 follow it faster where the statistic wanders, too (up to run 50 a single excess had become 30 alarms), and widen limits by how little is known of its phi far from the center. " +
		"They were chosen by seeds 1 to 6 with runs of 0.5 h. By the same program:\n")
	line("| run | seeds | false alarms, rules 6 → 7 → 8 | disturbances found |")
	line("| --- | --- | --- | --- |")
	line("| 0.5 h | 1 to 6, chosen by | 71 of 1140 (6.2 %%) → 45 (3.9 %%), rules 7 → 8 | 56 → 56 of 66 |")
	line("| 0.5 h | 7 to 9 | 152 of 570 (26.7 %%) → 36 (6.3 %%) → 34 (6.0 %%) | 61 → 58 → 56 of 63 |")
	line("| 0.5 h | 10 to 15, held out | 99 of 1140 (8.7 %%) → 62 (**5.4 %%**), rules 7 → 8 | 108 → 110 of 126 |")
	line("| 2.5 h | 4 to 6 | 12 of 570 (2.1 %%) → 14 (2.5 %%) → 16 (2.8 %%) | 56 → 55 → 55 of 63 |\n")
	line("Found includes what an alarm by chance finds; seeds 1 to 3 have one disturbance each there. " +
		"**The aim is missed.** What is left comes in episodes: the level of XMEAS 20 or 22 leaves where it was in Phase I, and the forecast returns to the center while an alarm stands. " +
		"Fifty runs are too few for a sensor whose memory is as long. Standard deviations of XMV 1 and 7, which are skewed, are most of the rest.\n")
}

// causes says how false alarms come together, and by which sensors.
func causes(line func(string, ...any), length float64, plants []measured) {
	alarms, episodes, leads := 0, 0, map[string]int{}
	for _, m := range plants {
		alarms += m.early.alarms + m.late.alarms
		episodes += m.episodes
		for sensor, n := range m.leads {
			leads[sensor] += n
		}
	}
	names := slices.SortedFunc(maps.Keys(leads), func(a, b string) int { return cmp.Or(cmp.Compare(leads[b], leads[a]), strings.Compare(a, b)) })
	var most []string
	for _, name := range names[:min(len(names), 4)] {
		most = append(most, fmt.Sprintf("%s (%d)", name, leads[name]))
	}
	line("- Runs of %s: %d false alarms in %d episodes; most out are %s.", hours(length), alarms, episodes, strings.Join(most, ", "))
}

func row(line func(string, ...any), length, plant string, early, late counts, courses map[string]int) {
	all := early
	all.plus(late)
	met := "yes"
	if share(all.alarms, all.runs) > aim {
		met = "**no**"
	}
	var by []string
	for _, c := range slices.Sorted(maps.Keys(courses)) {
		by = append(by, fmt.Sprintf("%s %d", c, courses[c]))
	}
	line("| %s | %s | %d | %d of %d (**%.1f %%**, %s) | %s | %d of %d | %d of %d (%.1f %%) | %d, %d, %d | %.1f %% | %.1f %% | %.1f %% | %s |",
		length, plant, early.learning, all.alarms, all.runs, share(all.alarms, all.runs), interval(all.alarms, all.runs), met,
		early.alarms, early.runs, late.alarms, late.runs, share(late.alarms, late.runs), late.single, late.t2, late.q,
		share(late.plainSamples, late.runs), share(late.over, late.samples), share(late.plainRuns, late.runs), strings.Join(by, ", "))
}

// interval is that of Clopper and Pearson (1934) at 95 %, in percent, as if runs were independent.
func interval(k, n int) string {
	low, high := 0.0, 1.0
	if k > 0 {
		low = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(0.025)
	}
	if k < n {
		high = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(0.975)
	}
	return fmt.Sprintf("%.1f to %.1f", 100*low, 100*high)
}

func share(k, n int) float64 { return 100 * float64(k) / max(float64(n), 1) }

// disturbances writes what was found.
func disturbances(line func(string, ...any), length float64, plants []measured) {
	line("## Disturbances, runs of %s\n", hours(length))
	line("Runs with an alarm, over %d plants, and with which run the first came in each plant (-: none). A plant that trips has fewer runs.\n", len(plants))
	line("| disturbance | runs | alarms | first alarm | plain PCA of samples | its first | samples over its limits |")
	line("| --- | ---: | --- | --- | --- | --- | ---: |")
	numbers := map[int]bool{}
	for _, m := range plants {
		for n := range m.disturbed {
			numbers[n] = true
		}
	}
	found, plainFound, all := 0, 0, 0
	for _, n := range slices.Sorted(maps.Keys(numbers)) {
		var sum counts
		var first, plain []string
		runs := 0
		for _, m := range plants {
			o, ok := m.disturbed[n]
			if !ok {
				continue
			}
			sum.plus(o.counts)
			runs += o.runs
			first, plain = append(first, ordinal(o.first)), append(plain, ordinal(o.plain))
			all++
			if o.first > 0 {
				found++
			}
			if o.plain > 0 {
				plainFound++
			}
		}
		line("| IDV %d | %d | %d (%.0f %%) | %s | %d (%.0f %%) | %s | %.0f %% |", n, runs, sum.alarms, share(sum.alarms, sum.runs), strings.Join(first, ", "),
			sum.plainSamples, share(sum.plainSamples, sum.runs), strings.Join(plain, ", "), share(sum.over, sum.samples))
	}
	line("\nFound: %d of %d by the defender, %d by plain PCA of samples. Its false alarms, and so what it finds by chance, are above.\n", found, all, plainFound)
}

func ordinal(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
