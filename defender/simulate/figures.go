package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// figures are what was measured of one process.
type figures struct {
	Process string
	Rate    rate
	Phases  [len(phases)]rate
	// Single, T2 and Q are the shares of runs that each raised an alarm on.
	Single, T2, Q rate
	// Wafer is the share of single faulty wafers found, by fault as in faults; Soon and
	// Ever that of lasting faults found within soon runs, and at all.
	Wafer, Soon, Ever []rate
}

func figuresOf(p process, tallies []tally) figures {
	f := figures{Process: p.name}
	over := func(k, n func(t *tally) int) rate {
		ks, ns := make([]int, len(tallies)), make([]int, len(tallies))
		for i := range tallies {
			ks[i], ns[i] = k(&tallies[i]), n(&tallies[i])
		}
		return rateOf(ks, ns)
	}
	all := func(t *tally) int { return sum(t.judged[:]) }
	f.Rate = over(func(t *tally) int { return sum(t.alarms[:]) }, all)
	for phase := range phases {
		f.Phases[phase] = over(func(t *tally) int { return t.alarms[phase] }, func(t *tally) int { return t.judged[phase] })
	}
	f.Single = over(func(t *tally) int { return t.single }, all)
	f.T2 = over(func(t *tally) int { return t.t2 }, all)
	f.Q = over(func(t *tally) int { return t.q }, all)

	probes, onsets := func(t *tally) int { return t.probes }, func(t *tally) int { return t.onsets }
	for i := range faults() {
		f.Wafer = append(f.Wafer, over(func(t *tally) int { return t.found[i] }, probes))
		f.Soon = append(f.Soon, over(func(t *tally) int { return t.soon[i] }, onsets))
		f.Ever = append(f.Ever, over(func(t *tally) int { return t.ever[i] }, onsets))
	}
	return f
}

func sum(xs []int) int {
	total := 0
	for _, x := range xs {
		total += x
	}
	return total
}

// keep writes the figures to a file.
func (p *page) keep(name string) error {
	list := make([]figures, 0, len(p.rows))
	for _, r := range p.rows {
		list = append(list, r.figures)
	}
	data, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(name, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("keeping the figures: %w", err)
	}
	return nil
}

// readFigures reads figures that keep has written, by process.
func readFigures(name string) (map[string]figures, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the figures beside: %w", err)
	}
	var list []figures
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("reading the figures beside: %s: %w: write it by --json", name, err)
	}
	by := make(map[string]figures, len(list))
	for _, f := range list {
		if len(f.Wafer) != len(faults()) || len(f.Soon) != len(faults()) || len(f.Ever) != len(faults()) {
			return nil, fmt.Errorf("reading the figures beside: %s is of other faults: write it again by --json", name)
		}
		by[f.Process] = f
	}
	return by, nil
}

// MarshalJSON keeps what a page shows of a rate.
func (r rate) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]float64{float64(r.k), float64(r.n), r.low, r.high})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (r *rate) UnmarshalJSON(data []byte) error {
	var v [4]float64
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	*r = rate{int(v[0]), int(v[1]), v[2], v[3]}
	return nil
}
