package ingest

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// role is what a column holds.
type role int

const (
	toolRole role = iota
	chamberRole
	runRole
	recipeRole
	productRole
	lotRole
	waferRole
	timeRole
	stepRole
	sensorRole // names of sensors, in the long form
	valueRole  // values, in the long form
	roles

	identities = timeRole // the roles before it say which run it is
)

var roleNames = [roles]string{"tool", "chamber", "run", "recipe", "product", "lot", "wafer", "time", "step", "sensor", "value"}

// Column names where a request says nothing else, as those of muster defender analyze.
const (
	defaultTime = "Time"
	defaultStep = "Step Number"
	noStep      = "-" // as step-column: each run is one step
)

// units are the parameter time-unit's values with the nanoseconds that each stands for.
var units = map[string]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// Request says which run a table holds and what its columns mean.
type Request struct {
	identity [identities]string // as said by parameters; empty where a column says it
	columns  [roles]string      // name of the column of a role; empty if there is none
	ignored  []string
	start    time.Time // of the run, if times count from it; else zero
	unit     int64     // nanoseconds that 1 stands for in the time column
}

// Parameters lists the names that a request may have, sorted.
func Parameters() []string {
	names := []string{"start", "time-unit", "ignore-columns"}
	for r, name := range roleNames {
		if role(r) < identities {
			names = append(names, name)
		}
		names = append(names, name+columnSuffix)
	}
	slices.Sort(names)
	return names
}

const columnSuffix = "-column"

// Mappings lists the parameters that say what columns hold, and not which run it is, sorted.
func Mappings() []string {
	return slices.DeleteFunc(Parameters(), func(name string) bool {
		return name == "start" || slices.Contains(roleNames[:], name)
	})
}

// ParseRequest reads parameters, with defaults for those that are not given. The error is a
// [*Problems] with everything that is wrong.
func ParseRequest(given, defaults url.Values) (Request, error) {
	p := &parameters{given: given, defaults: defaults}
	p.refuseUnknown()
	var r Request
	for i, name := range roleNames {
		r.columns[i] = p.get(name + columnSuffix)
		if role(i) < identities {
			r.identity[i] = p.get(name)
			p.refuseBoth(name)
		}
	}
	if p.given.Has(roleNames[stepRole]+columnSuffix) && r.columns[stepRole] == "" {
		p.problems.add("step-column", 0, "is empty: name the column, or write %s if each run is one step", noStep)
	}

	r.columns[timeRole] = or(r.columns[timeRole], defaultTime)
	switch r.columns[stepRole] {
	case "":
		r.columns[stepRole] = defaultStep
	case noStep:
		r.columns[stepRole] = ""
	}
	if (r.columns[sensorRole] == "") != (r.columns[valueRole] == "") {
		p.problems.add("sensor-column", 0, "and value-column belong together: the long form needs both, the wide form none")
	}
	for _, needed := range []role{chamberRole, runRole} {
		if r.identity[needed] == "" && r.columns[needed] == "" {
			p.problems.add(roleNames[needed], 0, "is missing: give %s=..., or name the column that holds it with %s%s=...", roleNames[needed], roleNames[needed], columnSuffix)
		}
	}
	if list := p.get("ignore-columns"); list != "" {
		r.ignored = strings.Split(list, ",")
	}
	r.start = p.start()
	r.unit = p.unit()
	return r, p.problems.err()
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// long reports whether the table has a row for each value of a sensor.
func (r *Request) long() bool { return r.columns[sensorRole] != "" }

// rolesOf returns what a column holds, and whether it is an ignored one.
func (r *Request) rolesOf(column string) (held []role, ignored bool) {
	for i, name := range r.columns {
		if name == column && name != "" {
			held = append(held, role(i))
		}
	}
	// What pandas writes for an index without a name is no sensor.
	index := strings.HasPrefix(column, "__index_level_")
	return held, index || slices.Contains(r.ignored, column)
}

// parameters reads those of a request.
type parameters struct {
	given, defaults url.Values
	problems        Problems
}

func (p *parameters) get(name string) string {
	if p.given.Has(name) {
		return p.given.Get(name)
	}
	return p.defaults.Get(name)
}

func (p *parameters) refuseUnknown() {
	known := Parameters()
	for _, name := range slices.Sorted(maps.Keys(p.given)) {
		switch {
		case !slices.Contains(known, name):
			p.problems.add(name, 0, "is no parameter: there are %s", strings.Join(known, ", "))
		case len(p.given[name]) > 1:
			p.problems.add(name, 0, "is given %d times: give it once", len(p.given[name]))
		}
	}
}

// refuseBoth notes a request that says something itself and says that a column does.
func (p *parameters) refuseBoth(name string) {
	if p.given.Get(name) != "" && p.given.Get(name+columnSuffix) != "" {
		p.problems.add(name, 0, "is given, and %s%s as well: leave out one", name, columnSuffix)
	}
}

func (p *parameters) start() time.Time {
	text := p.get("start")
	if text == "" {
		return time.Time{}
	}
	start, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		p.problems.add("start", 0, "%s is no time: write it as 2026-03-01T12:00:00.5Z", quoted(text))
	}
	return start.UTC()
}

func (p *parameters) unit() int64 {
	text := or(p.get("time-unit"), "s")
	unit, ok := units[text]
	if !ok {
		p.problems.add("time-unit", 0, "%s is no unit: write s, ms, us or ns", quoted(text))
	}
	return unit
}
