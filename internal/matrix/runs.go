package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/e2e"
)

// playing is one run: the flags of muster up.
type playing []string

func (p playing) String() string { return strings.Join(p, " ") }

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// file returns where something of the run is kept.
func (p playing) file(dir, kind string) string {
	return filepath.Join(dir, strings.Trim(noName.ReplaceAllString(p.String(), "-"), "-")+kind)
}

func (p playing) scenario() string { return p[slices.Index(p, "--scenario")+1] }

var (
	processes = []string{"--processes"}
	three     = []string{"--servers", "3", "--replicas", "3"}
	// Each slot is a Raft group on each server then: fewer than else, on one machine.
	fewer = []string{"--slots", "512"}
	// A load that any machine holds; what it is for is measured by itself.
	light = []string{"--chambers", "400", "--rate", "150", "--minutes", "1"}
)

// alwaysProcesses are the scenarios that run defenders as processes in any case.
var alwaysProcesses = []string{"crash", "leader-and-candidates-crash"}

// playings returns all runs, the scenarios in alphabetic order.
func playings() []playing {
	onNodes := e2e.OnNodes()
	var all []playing
	for _, name := range e2e.Names() {
		add := func(flags ...[]string) {
			p := append(playing{"--scenario", name}, slices.Concat(flags...)...)
			if slices.Contains(p, "--replicas") && name != "resharding" {
				p = append(p, fewer...)
			}
			all = append(all, p)
		}
		switch {
		case name == "chaos": // always processes and three servers
			add([]string{"--minutes", "10", "--seed", "7"})
			add([]string{"--minutes", "3", "--seed", "7", "--retry-attempts", "20"})
		case name == "crowd": // always processes and one server
			add([]string{"--defenders", "150"})
		case name == "load": // always one process
			add(light)
		case name == "power-cut": // always processes
			add()
			add([]string{"--sync", "default"})
			add([]string{"--servers", "3"})
		case name == "mixed-version": // needs the binary of another version: TestMixedVersion builds it
		case slices.Contains(alwaysProcesses, name):
			add()
			add(three)
		case name == "broker-wiped": // always one server
			add()
			add(processes)
		case slices.Contains(onNodes, name):
			add()
			add(processes)
			add(three)
			add([]string{"--lab"}, processes)
		default:
			add()
			add(processes)
			add(three)
			add(processes, three)
		}
		for _, c := range e2e.Cases(name) {
			if name == "mixed-version" {
				continue
			}
			flags := [][]string{{"--case", c}}
			switch {
			case name == "load":
				add(append(flags, light)...)
			case name == "crowd":
				add(append(flags, []string{"--defenders", "150"})...)
			case name == "power-cut": // of three
				add(append(flags, []string{"--servers", "3"})...)
			case name == "broker-outage" && c == "one-server":
				add(append(flags, three)...)
				add(append(flags, processes, three)...)
			case name == "rolling-update": // its other strategy
				add(flags...)
				add(append(flags, processes)...)
				add(append(flags, three)...)
				add(append(flags, processes, three)...)
			default:
				add(flags...)
			}
		}
	}
	return all
}

// outcome is how a run ended.
type outcome struct {
	Flags   string     `json:"flags"`
	Busy    bool       `json:"busy,omitempty"`
	Exit    int        `json:"exit"`
	Seconds float64    `json:"seconds"`
	Report  e2e.Report `json:"-"`
}

func (o outcome) write(dir string, p playing) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(p.file(dir, ".json"), b, 0o644)
}

// readOutcome reads a run that is kept.
func readOutcome(dir string, p playing) (outcome, error) {
	var o outcome
	if err := readJSON(p.file(dir, ".json"), &o); err != nil {
		return o, err
	}
	if err := readJSON(p.file(dir, ".report"), &o.Report); err != nil && o.Exit == 0 {
		return o, err // one that failed may have none
	}
	return o, nil
}

func readJSON(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("reading %s: %w: remove it to play that run again", file, err)
	}
	return nil
}

var columns = []string{"flags", "exit", "seconds", "checks", "published", "lost", "concurrent", "out of order", "pause, ms"}

func (o outcome) row() []string {
	ok := 0
	for _, c := range o.Report.Checks {
		if c.OK {
			ok++
		}
	}
	return []string{o.Flags, fmt.Sprint(o.Exit), fmt.Sprintf("%.0f", o.Seconds), fmt.Sprintf("%d of %d", ok, len(o.Report.Checks)),
		o.measured("published"), o.measured("lost"), o.measured("concurrent"), o.measured("out_of_order"), o.pause()}
}

func (o outcome) measured(name string) string {
	if v, ok := o.Report.Measurements[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// pauses are the measurements that say how long a moved slot stood still; a
// scenario has one of them.
var pauses = []string{"handoff_pause_ms", "kill_to_first_start_ms", "restart_pause_ms", "back_to_first_start_ms", "resharding_256_to_512_pause_ms", "pause_ms"}

func (o outcome) pause() string {
	for _, name := range pauses {
		if d, ok := o.Report.Measurements[name].(map[string]any); ok {
			return fmt.Sprintf("p50 %.0f, p99 %.0f", d["p50"], d["p99"])
		}
	}
	return ""
}
