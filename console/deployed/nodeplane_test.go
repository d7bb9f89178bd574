package deployed

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/local"
)

// TestNodePlane: a node plane is shown by what its processes made durable.
func TestNodePlane(t *testing.T) {
	t.Parallel()
	store, err := local.Open(t.Context(), t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("no such table")
	n := newNodePlane("node plane", func(context.Context) (*connect.Stores, error) {
		if away != nil {
			return nil, away
		}
		return &connect.Stores{Store: store, EventLog: store}, nil
	})
	page, err := console.New(console.Options{Nodes: n.now})
	if err != nil {
		t.Fatal(err)
	}
	n.pages = []*console.Console{page}
	read := func() (console.NodePlane, error) { n.read(t.Context()); return n.now(t.Context()) }
	log := func(seq int, kind string, at time.Time, data any) {
		t.Helper()
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Append(t.Context(), nodes.Event{At: at, Tick: "t", Seq: seq, Kind: kind, Message: "for a test", Data: b}); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(at time.Time) nodes.Snapshot {
		w := nodes.Worker{Instance: nodes.Instance{ID: "i-1", Zone: "a", State: nodes.StateRunning, LaunchedAt: at.Add(-time.Hour)}}
		return nodes.Snapshot{Now: at, Policy: nodes.DefaultPolicy(), Observation: nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{w}},
			Decision: nodes.Decision{Action: nodes.Noop, Reason: nodes.ReasonPendingTooShort}}
	}

	if err := n.setScaling(t.Context(), console.Command{Name: console.PauseScaling}); err == nil {
		t.Error("scaling is paused before anything is open")
	}
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "node plane is away since") || !strings.Contains(err.Error(), "no such table") {
		t.Errorf("away: %v", err)
	}
	away = nil
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "no tick has been logged yet") {
		t.Errorf("nothing logged: %v", err)
	}

	log(1, "decision", time.Now().Add(-time.Hour), seen(time.Now().Add(-time.Hour)))
	if v, err := read(); err == nil || !strings.Contains(err.Error(), "the last tick was 1h0m0s ago") || len(v.Nodes) != 1 {
		t.Errorf("a decision of an hour ago: %v, %d nodes", err, len(v.Nodes))
	}
	log(2, "scaleUp.completed", time.Now(), nil)
	log(3, "decision", time.Now(), seen(time.Now()))
	v, err := read()
	if err != nil || len(v.Nodes) != 1 || v.Nodes[0].Instance != "i-1" || v.Decision == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if v.Decision.Means == "" || len(v.Decision.Next) == 0 {
		t.Errorf("the sentences of explain are missing: %+v", v.Decision)
	}

	// A record of another cluster would hide the actions in progress.
	other := seen(time.Now())
	other.Record = nodes.NewRecord("fab2")
	log(4, "decision", time.Now(), other)
	if _, err := read(); err == nil || !strings.Contains(err.Error(), `set CLUSTER to "fab2"`) {
		t.Errorf("decisions of another cluster: %v", err)
	}
	log(5, "decision", time.Now(), seen(time.Now()))

	// What became durable since the decision is shown, also what this console did.
	pause := console.Command{Name: console.PauseScaling, By: "olga", Reason: "a switch"}
	if err := n.setScaling(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	pause.By = "vera"
	if err := n.setScaling(t.Context(), pause); !errors.Is(err, console.ErrDoneAlready) {
		t.Errorf("paused twice: %v", err)
	}
	if v, err = read(); err != nil || v.Paused == nil || v.Paused.By != "olga" {
		t.Errorf("%+v, %v", v.Paused, err)
	}
	_, _ = read() // which tells nothing twice
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/api/events", nil))
	var moments []console.Moment
	if err := json.Unmarshal(answer.Body.Bytes(), &moments); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range moments {
		kinds = append(kinds, m.Kind)
	}
	if got := strings.Join(kinds, " "); got != "scaling.paused scaleUp.completed" {
		t.Errorf("the timeline has %q", got)
	}
}
