package gem

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// example is the plan of the documentation.
const example = `
schema: 1
types:
  etcher:
    svids: {Clock: 1001, Wafer: 1010, Recipe: 1011, Step: 1012, Pressure: 3001, Power: 3002}
    clock: Clock
    time_zone: Europe/Berlin
    alarms: {ids: [17, 18]}
    chambers:
      chamber1:
        sensors: [Pressure, Power]
        step: Step
        period: 100ms
        group: 10
        start: 5001
        end: 5002
        run: Wafer
        recipe: Recipe
tools:
  - {name: etch01, type: etcher, address: "10.0.0.7:5000"}
`

func TestParsePlan(t *testing.T) {
	t.Parallel()
	p, err := ParsePlan([]byte(example), "plan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := p.Types["etcher"].Chambers["chamber1"]
	if time.Duration(c.Period) != 100*time.Millisecond || c.Group != 10 || p.Types["etcher"].zone.String() != "Europe/Berlin" || p.Tools[0].Address != "10.0.0.7:5000" {
		t.Errorf("%+v", p)
	}
	json, err := yaml.YAMLToJSON([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(name, json, 0o600); err != nil {
		t.Fatal(err)
	}
	same, err := LoadPlan(name)
	if err != nil || !reflect.DeepEqual(same, p) {
		t.Errorf("as JSON it is %+v, %v", same, err)
	}
	if _, err := LoadPlan(name + "x"); err == nil {
		t.Error("a file that isn't there is a plan")
	}
}

// TestParsePlan_faults: everything that is wrong is said at once, by the place and with the fix.
func TestParsePlan_faults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		change string // what is replaced, and by what
		want   []string
	}{
		{"schema: 1>schema: 2", []string{"schema: is 2: write 1"}},
		{"clock: Clock>clock: Time", []string{`types.etcher.clock: there is no "Time" among svids: add it there, with its ID`}},
		{"clock: Clock>", []string{"types.etcher.clock: is missing: give the alias of the equipment's clock"}},
		{"Europe/Berlin>Berlin", []string{"types.etcher.time_zone: unknown time zone Berlin: write it as Europe/Berlin"}},
		{"Power: 3002>Power: 3001", []string{"types.etcher.svids.Pressure: is 3001, as Power is: leave out one"}},
		{"alarms: {>alarms: {all: true, ", []string{"types.etcher.alarms: has all and ids: leave out one"}},
		{"[Pressure, Power]>[Pressure, Flow, Pressure]", []string{
			`chamber1.sensors[1]: there is no "Flow" among svids`, `chamber1.sensors[2]: "Pressure" is there twice: leave it out`}},
		{"sensors: [Pressure, Power]>sensors: []", []string{"chamber1.sensors: there are 0: list 1 to 4096 aliases"}},
		{"step: Step>step: Power", []string{`chamber1.step: "Power" is there twice`}},
		{"period: 100ms>period: 15ms", []string{"chamber1.period: is 15ms: SECS-II has hundredths of a second: give a multiple of 10ms"}},
		{"period: 100ms>", []string{"chamber1.period: is 0s: give 10ms to 24h0m0s"}},
		{"period: 100ms>period: 1", []string{"period"}},
		{"group: 10>group: 20000", []string{"chamber1.group: is 20000: give at most 10000 samples per message"}},
		{"start: 5001>", []string{"chamber1.start: is missing: give the ID of the event that starts a run"}},
		{"end: 5002>end: 5001", []string{"chamber1.end: is event 5001, as types.etcher.chambers.chamber1.start is: give each an event of its own"}},
		{"run: Wafer>run: Waver", []string{`chamber1.run: there is no "Waver" among svids`}},
		{"run: Wafer>on_alarm: {parameters: {A: b}}", []string{"chamber1.on_alarm.command: is missing, and there are parameters"}},
		{"name: etch01>name: etch 01", []string{`tools[0].name: tool "etch 01" contains ' '`}},
		{"type: etcher>type: cvd", []string{`tools[0].type: there is no type "cvd": name one of types`}},
		{"10.0.0.7:5000>10.0.0.7", []string{`tools[0].address: "10.0.0.7" is no address: write host:port, as 10.0.0.7:5000`}},
		{"type: etcher>type: etcher, session: 40000", []string{"tools[0].session: is 40000: a device ID is 0 to 32767"}},
		{"clock: Clock>clock: Clock\n    timers: {t3: 1h}", []string{"types.etcher.timers.t3: is 1h0m0s: give 10ms to 4m0s"}},
		{"clock: Clock>clock: Clock\n    clocks: Clock", []string{`unknown field "clocks"`}},
		{"tools:>tools: [", []string{"line"}},
		{"schema: 1>schema: 2\nzone: x", []string{`unknown field "zone"`}},
	} {
		from, to, _ := strings.Cut(test.change, ">")
		if !strings.Contains(example, from) {
			t.Fatalf("the example has no %q", from)
		}
		_, err := ParsePlan([]byte(strings.Replace(example, from, to, 1)), "plan.yaml")
		faults := new(Faults)
		if !errors.As(err, &faults) {
			t.Errorf("%s: %v", test.change, err)
			continue
		}
		if len(faults.List) != len(test.want) {
			t.Errorf("%s: %d faults, want %d:\n%v", test.change, len(faults.List), len(test.want), err)
		}
		for _, want := range test.want {
			if !slices.ContainsFunc(faults.List, func(f string) bool { return strings.Contains(f, want) }) {
				t.Errorf("%s: the faults are\n%v, want in them %s", test.change, err, want)
			}
		}
	}
}

func TestParseClock(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"260301130000":              "2026-03-01T12:00:00Z",
		"2026030113000007":          "2026-03-01T12:00:00.07Z",
		" 2026030113000007 ":        "2026-03-01T12:00:00.07Z",
		"2026-03-01T13:00:00.125":   "2026-03-01T12:00:00.125Z",
		"2026-03-01T12:00:00.5Z":    "2026-03-01T12:00:00.5Z",
		"2026-03-01T05:00:00-07:00": "2026-03-01T12:00:00Z",
		"2026070113000000":          "2026-07-01T11:00:00Z",
	} {
		got, err := parseClock(text, berlin)
		if err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s is %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2026", "2026139913000007", "26030113000x", "noon", "99999999999999999"} {
		if got, err := parseClock(text, berlin); err == nil || !strings.Contains(err.Error(), "set the equipment's TimeFormat") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func TestSamplePeriod(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"000001": time.Second, "00000010": 100 * time.Millisecond, "00000105": 1050 * time.Millisecond, "013005": 90*time.Minute + 5*time.Second, "240000": 24 * time.Hour,
	} {
		if got := samplePeriod(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
