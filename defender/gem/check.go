package gem

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/ingest"
)

// Limits of a plan.
const (
	maxPeriod  = 24 * time.Hour
	minPeriod  = 10 * time.Millisecond // what DSPER can say
	maxGroup   = 10_000
	maxTimer   = 240 * time.Second // as SEMI E37 has it for most
	minTimer   = 10 * time.Millisecond
	maxSensors = 4096
	maxAlarms  = 10_000
	maxTools   = 10_000
)

// faults collects what is wrong with a plan.
type faults []string

func (f *faults) add(at, format string, args ...any) {
	*f = append(*f, at+": "+fmt.Sprintf(format, args...))
}

// check returns everything that is wrong, by the place in the plan.
func (p *Plan) check() []string {
	var f faults
	if p.Schema != 1 {
		f.add("schema", "is %d: write 1", p.Schema)
	}
	if len(p.Types) == 0 {
		f.add("types", "there is none: describe at least one type of tool")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Types)) {
		t := p.Types[name]
		t.check(&f, "types."+name)
	}
	if n := len(p.Tools); n == 0 || n > maxTools {
		f.add("tools", "there are %d: list 1 to %d", n, maxTools)
	}
	names := map[string]bool{}
	for i, tool := range p.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if names[tool.Name] {
			f.add(at+".name", "%q is there twice: give each its own name", tool.Name)
		}
		names[tool.Name] = true
		p.checkTool(&f, at, tool)
	}
	return f
}

func (p *Plan) checkTool(f *faults, at string, tool Tool) {
	if err := (defender.Chamber{Tool: tool.Name, Name: "any"}).Validate(); err != nil {
		f.add(at+".name", "%v", err)
	}
	if _, ok := p.Types[tool.Type]; !ok {
		f.add(at+".type", "there is no type %q: name one of types", tool.Type)
	}
	if host, port, err := net.SplitHostPort(tool.Address); err != nil || host == "" || port == "" {
		f.add(at+".address", "%q is no address: write host:port, as 10.0.0.7:5000", tool.Address)
	}
	if tool.Session > 0x7fff {
		f.add(at+".session", "is %d: a device ID is 0 to 32767", tool.Session)
	}
}

func (t *Type) check(f *faults, at string) {
	if len(t.SVIDs) == 0 {
		f.add(at+".svids", "there is none: give each variable that the plan uses an alias, as Pressure: 3001")
	}
	ids := map[uint32]string{}
	for _, alias := range slices.Sorted(maps.Keys(t.SVIDs)) {
		if other, ok := ids[t.SVIDs[alias]]; ok {
			f.add(at+".svids."+alias, "is %d, as %s is: leave out one", t.SVIDs[alias], other)
		}
		ids[t.SVIDs[alias]] = alias
		if n := len(alias); n == 0 || n > 256 {
			f.add(at+".svids", "an alias has %d bytes: give it 1 to 256", n)
		}
	}
	t.alias(f, at+".clock", t.Clock, "the equipment's clock, which GEM requires it to have")
	if _, err := time.LoadLocation(t.TimeZone); err != nil {
		f.add(at+".time_zone", "%v: write it as Europe/Berlin", err)
	}
	if t.Alarms.All && len(t.Alarms.IDs) > 0 {
		f.add(at+".alarms", "has all and ids: leave out one")
	}
	if n := len(t.Alarms.IDs); n > maxAlarms {
		f.add(at+".alarms.ids", "there are %d: list at most %d, or write all: true", n, maxAlarms)
	}
	t.Timers.check(f, at+".timers")
	if len(t.Chambers) == 0 {
		f.add(at+".chambers", "there is none: describe at least one")
	}
	events := map[uint32]string{}
	for _, name := range slices.Sorted(maps.Keys(t.Chambers)) {
		c, at := t.Chambers[name], at+".chambers."+name
		if err := (defender.Chamber{Tool: "any", Name: name}).Validate(); err != nil {
			f.add(at, "%v", err)
		}
		for _, e := range [...]struct {
			field string
			id    uint32
		}{{at + ".start", c.Start}, {at + ".end", c.End}} {
			if other, ok := events[e.id]; ok && e.id != 0 {
				f.add(e.field, "is event %d, as %s is: give each an event of its own", e.id, other)
			}
			events[e.id] = cmp.Or(events[e.id], e.field)
		}
		t.checkChamber(f, at, c)
	}
	slices.Sort(*f)
}

func (t *Type) checkChamber(f *faults, at string, c Chamber) {
	if n := len(c.Sensors); n == 0 || n > maxSensors {
		f.add(at+".sensors", "there are %d: list 1 to %d aliases", n, maxSensors)
	}
	seen := map[string]bool{}
	for i, alias := range c.traced() {
		field := fmt.Sprintf("%s.sensors[%d]", at, i)
		if i == len(c.Sensors) {
			field = at + ".step"
		}
		if seen[alias] {
			f.add(field, "%q is there twice: leave it out", alias)
		}
		seen[alias] = true
		t.alias(f, field, alias, "a variable to trace")
	}
	if c.Start == 0 {
		f.add(at+".start", "is missing: give the ID of the event that starts a run")
	}
	if c.End == 0 {
		f.add(at+".end", "is missing: give the ID of the event that ends a run")
	}
	for field, alias := range map[string]string{"run": c.Run, "recipe": c.Recipe, "product": c.Product, "lot": c.Lot, "wafer": c.Wafer} {
		if alias != "" {
			t.alias(f, at+"."+field, alias, "the "+field)
		}
	}

	if c.OnAlarm.Command == "" && len(c.OnAlarm.Parameters) > 0 {
		f.add(at+".on_alarm.command", "is missing, and there are parameters: name the remote command, or leave them out")
	}

	period := time.Duration(c.Period)
	switch {
	case period < minPeriod || period > maxPeriod:
		f.add(at+".period", "is %v: give %v to %v", period, minPeriod, maxPeriod)
	case period%(10*time.Millisecond) != 0:
		f.add(at+".period", "is %v: SECS-II has hundredths of a second: give a multiple of 10ms", period)
	}
	if c.Group > maxGroup || int(c.Group)*len(c.traced()) > ingest.MaxNumbers {
		f.add(at+".group", "is %d: give at most %d samples per message", c.Group, maxGroup)
	}
}

// alias notes an alias that is missing, or that svids don't have.
func (t *Type) alias(f *faults, at, alias, what string) {
	if alias == "" {
		f.add(at, "is missing: give the alias of %s", what)
	} else if _, ok := t.SVIDs[alias]; !ok {
		f.add(at, "there is no %q among svids: add it there, with its ID", alias)
	}
}

func (t *Timers) check(f *faults, at string) {
	for name, d := range map[string]Duration{"t3": t.T3, "t5": t.T5, "t6": t.T6, "t7": t.T7, "t8": t.T8, "linktest": t.Linktest} {
		if v := time.Duration(d); v != 0 && (v < minTimer || v > maxTimer) {
			f.add(at+"."+name, "is %v: give %v to %v", v, minTimer, maxTimer)
		}
	}
}
