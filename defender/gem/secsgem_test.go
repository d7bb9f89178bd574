package gem

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/component"
)

// independent is a process of testdata/equipment.py.
type independent struct {
	mu   sync.Mutex
	said []map[string]json.RawMessage
	done chan struct{} // closed when its runs are done
}

func startIndependent(t *testing.T, python string, runs, samples int) *independent {
	t.Helper()
	i := &independent{done: make(chan struct{})}
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "equipment.py"), strconv.Itoa(runs), strconv.Itoa(samples))
	in, out := startProcess(t, cmd)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			i.note(t, lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return i
}

func (i *independent) note(t *testing.T, line []byte) {
	said := map[string]json.RawMessage{}
	if err := json.Unmarshal(line, &said); err != nil {
		t.Errorf("the equipment says %s", line)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.said = append(i.said, said)
	if said["done"] != nil {
		close(i.done)
	}
}

// all returns what it has said of a kind.
func (i *independent) all(what string) []json.RawMessage {
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []json.RawMessage
	for _, said := range i.said {
		if said[what] != nil {
			list = append(list, said[what])
		}
	}
	return list
}

// waitFor waits until it has said something of a kind.
func (i *independent) waitFor(t *testing.T, what, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, said := range i.all(what) {
			if strings.Contains(string(said), text) {
				return
			}
		}
	}
	t.Fatalf("the equipment doesn't say %q with %q, but %s", what, text, i.all(what))
}

// independentPlan is the plan for testdata/equipment.py.
func independentPlan(t *testing.T, group int, addresses ...string) *Plan {
	t.Helper()
	text := fmt.Sprintf(`
schema: 1
types:
  etcher:
    svids: {Clock: 1001, Run: 2, Recipe: 3, Step: 4, Pressure: 10, Power: 11}
    clock: Clock
    alarms: {ids: [77]}
    timers: {t3: 5s, t5: 50ms}
    chambers:
      a: {sensors: [Pressure, Power], step: Step, period: 100ms, group: %d, start: 1101, end: 1102, run: Run, recipe: Recipe,
          on_alarm: {terminal: true, command: HOLD, parameters: {CHAMBER: "1"}}}
tools:
`, group)
	for i, address := range addresses {
		text += fmt.Sprintf("  - {name: etch%d, type: etcher, address: %q}\n", i+1, address)
	}
	p, err := ParsePlan([]byte(text), "plan")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSecsgem: runs of several processes of independent equipment are taken whole, its alarms
// are reported, and it is told of ours.
func TestSecsgem(t *testing.T) {
	t.Parallel()
	python := filepath.Join(component.SECSGEM().Fetch(t), "python", "bin", "python")
	const tools, runs, samples = 3, 4, 25
	for _, group := range []int{1, 5} {
		t.Run(fmt.Sprintf("groups of %d", group), func(t *testing.T) {
			t.Parallel()
			var all []*independent
			var addresses []string
			for range tools {
				i := startIndependent(t, python, runs, samples)
				i.waitFor(t, "ready", "")
				all, addresses = append(all, i), append(addresses, "127.0.0.1:"+string(i.all("ready")[0]))
			}
			r := newRig(t, independentPlan(t, group, addresses...))
			r.start()
			for n, i := range all {
				tool := fmt.Sprintf("etch%d", n+1)
				i.waitFor(t, "done", "")
				r.reported(Connected, tool+": secsgem 0.3.0")
				r.reported(Alarm, tool+": 77 set (category 4): door is open")
				for run := range runs {
					r.reported(Taken, fmt.Sprintf("%s:a/lot1.w%d: %d samples of 2 sensors", tool, run, samples+1))
				}
				i.check(t, r, tool)

				ref := refOf("lot1.w3")
				ref.Chamber = defender.Chamber{Tool: tool, Name: "a"}
				r.host.Respond(t.Context(), defender.AlarmNotice{Alarm: defender.Alarm{Context: ref, Reason: "Pressure is high"}, Event: defender.AlarmOpened})
				i.waitFor(t, "terminal", "a run lot1.w3: Pressure is high")
				i.waitFor(t, "command", "HOLD 1")
			}
			r.stop()
			for _, what := range []string{Incomplete, Refused, Notice} {
				if got := r.all(what); len(got) > 0 {
					t.Errorf("%s: %q", what, got)
				}
			}
		})
	}
}

// check compares what was taken with what the equipment says it did.
func (i *independent) check(t *testing.T, r *rig, tool string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, said := range i.all("run") {
		var want struct {
			Name           string
			First, Samples int
		}
		if err := json.Unmarshal(said, &want); err != nil {
			t.Fatal(err)
		}
		run := r.runs[defender.TChartKey{Chamber: defender.Chamber{Tool: tool, Name: "a"}, Context: want.Name}]
		if run == nil {
			t.Errorf("%s: run %s is not taken", tool, want.Name)
			continue
		}
		if len(run.Trace.Time) != want.Samples || run.Ref.Recipe != fmt.Sprintf("etch/%d", n%2) {
			t.Errorf("%s: run %s has %d samples and recipe %q, want %d", tool, want.Name, len(run.Trace.Time), run.Ref.Recipe, want.Samples)
			continue
		}
		for row := range run.Trace.Time {
			v := want.First + row
			if p := run.Trace.Values[0][row]; p != float64(v)/7 || run.Trace.Values[1][row] != float64(-v) || int(run.Trace.Step[row]) != v%2+1 {
				t.Errorf("%s: sample %d of run %s has %v", tool, row, want.Name, p)
			}
		}
	}
}
