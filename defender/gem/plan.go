package gem

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/defender/hsms"
)

// maxPlanBytes is how large a plan may be.
const maxPlanBytes = 1 << 22

// Plan is a collection plan: which tools to connect to, and what to collect there.
type Plan struct {
	Schema int             `json:"schema"`
	Types  map[string]Type `json:"types"` // of tools, by name
	Tools  []Tool          `json:"tools"`
}

// Tool is one piece of equipment.
type Tool struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Address string `json:"address"`           // host:port
	Session uint16 `json:"session,omitempty"` // device ID
}

// Type is what all tools of a type have in common.
type Type struct {
	SVIDs    map[string]uint32  `json:"svids"` // by the aliases that the plan uses
	Clock    string             `json:"clock"` // alias of the equipment's clock
	TimeZone string             `json:"time_zone,omitempty"`
	Chambers map[string]Chamber `json:"chambers"`
	Alarms   Alarms             `json:"alarms,omitzero"`
	Spool    *bool              `json:"spool,omitempty"` // default true
	Timers   Timers             `json:"timers,omitzero"`

	zone *time.Location
}

// Chamber says what to collect of one chamber.
type Chamber struct {
	Sensors []string `json:"sensors"` // aliases
	Step    string   `json:"step,omitempty"`
	Period  Duration `json:"period"`
	Group   uint32   `json:"group,omitempty"` // samples per message; default 1
	Start   uint32   `json:"start"`           // ID of the event
	End     uint32   `json:"end"`

	// Aliases of the variables that say which run it is. A run without a name is named by
	// its start.
	Run     string `json:"run,omitempty"`
	Recipe  string `json:"recipe,omitempty"`
	Product string `json:"product,omitempty"`
	Lot     string `json:"lot,omitempty"`
	Wafer   string `json:"wafer,omitempty"`

	OnAlarm Response `json:"on_alarm,omitzero"`
}

// Response is what equipment is told of an alarm of its chamber.
type Response struct {
	Terminal   bool              `json:"terminal,omitempty"` // the alarm is shown on its terminal
	Command    string            `json:"command,omitempty"`  // name of a remote command
	Parameters map[string]string `json:"parameters,omitempty"`
}

func (r *Response) empty() bool { return !r.Terminal && r.Command == "" }

// Responds reports whether any chamber's equipment is told of alarms.
func (p *Plan) Responds() bool {
	for _, t := range p.Types {
		for _, c := range t.Chambers {
			if !c.OnAlarm.empty() {
				return true
			}
		}
	}
	return false
}

// Alarms says which alarms of the equipment are reported.
type Alarms struct {
	All bool     `json:"all,omitempty"`
	IDs []uint32 `json:"ids,omitempty"`
}

// Timers are the timeouts of HSMS; see [hsms.Timers].
type Timers struct {
	T3       Duration `json:"t3,omitzero"`
	T5       Duration `json:"t5,omitzero"`
	T6       Duration `json:"t6,omitzero"`
	T7       Duration `json:"t7,omitzero"`
	T8       Duration `json:"t8,omitzero"`
	Linktest Duration `json:"linktest,omitzero"`
}

func (t Timers) hsms() hsms.Timers {
	return hsms.Timers{
		Reply: time.Duration(t.T3), Separation: time.Duration(t.T5), Control: time.Duration(t.T6),
		NotSelected: time.Duration(t.T7), Character: time.Duration(t.T8), Linktest: time.Duration(t.Linktest),
	}
}

// Duration is a time.Duration that is written as "100ms".
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration: write it as 100ms or 1s", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Faults is the error of a plan, one line for each fault.
type Faults struct {
	Name string // of the file
	List []string
}

func (f *Faults) Error() string {
	return fmt.Sprintf("%s has %d faults:\n  %s", f.Name, len(f.List), strings.Join(f.List, "\n  "))
}

// LoadPlan reads a file; see [ParsePlan].
func LoadPlan(name string) (*Plan, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading the collection plan: %w", err)
	}
	if info.Size() > maxPlanBytes {
		return nil, fmt.Errorf("reading the collection plan: %s has %d bytes, at most %d are allowed", name, info.Size(), maxPlanBytes)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the collection plan: %w", err)
	}
	return ParsePlan(content, name)
}

// ParsePlan reads and checks a plan in YAML or JSON. The name is for messages. The error is
// a [*Faults] with all that is wrong, or with what is wrong with the syntax.
func ParsePlan(content []byte, name string) (*Plan, error) {
	var p Plan
	if err := yaml.UnmarshalStrict(content, &p); err != nil {
		text := strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: ")
		text = strings.TrimPrefix(text, "error converting YAML to JSON: yaml: ")
		return nil, &Faults{Name: name, List: []string{strings.ReplaceAll(text, "json: ", "")}}
	}
	if faults := p.check(); len(faults) > 0 {
		return nil, &Faults{Name: name, List: faults}
	}
	p.complete()
	return &p, nil
}

// complete fills in what follows from a plan that has no faults.
func (p *Plan) complete() {
	for name, t := range p.Types {
		t.zone, _ = time.LoadLocation(t.TimeZone) // "" is UTC; it was checked
		for chamber, c := range t.Chambers {
			c.Group = max(c.Group, 1)
			t.Chambers[chamber] = c
		}
		p.Types[name] = t
	}
}

// identity returns the aliases of the variables that say which run it is, in their order in
// reports; empty ones are left out there.
func (c *Chamber) identity() []string { return []string{c.Run, c.Recipe, c.Product, c.Lot, c.Wafer} }

// traced returns the aliases that the chamber's trace has, in their order: the step comes last.
func (c *Chamber) traced() []string {
	if c.Step == "" {
		return c.Sensors
	}
	return append(slices.Clone(c.Sensors), c.Step)
}
