package dynamo

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestADynamoDBThatRefusesHoldsTheReconcilerUpAndLosesNothing lets the real reconciler scale a simulated cluster up and down over
// tables that refuse, in turn, everything for two ticks, then only now and then. No instance may be launched twice or left behind, and when
// the tables answer again the cluster gets where it belongs.
func TestADynamoDBThatRefusesHoldsTheReconcilerUpAndLosesNothing(t *testing.T) {
	lost := errors.New("connection reset")
	for name, fault := range map[string]func(send func() (*http.Response, error)) (*http.Response, error){
		"throttled": func(func() (*http.Response, error)) (*http.Response, error) {
			return refuse(400, "ProvisionedThroughputExceededException", "slow down")
		},
		"denied": func(func() (*http.Response, error)) (*http.Response, error) {
			return refuse(400, "AccessDeniedException", "not authorized")
		},
		"broken": func(func() (*http.Response, error)) (*http.Response, error) {
			return refuse(500, "InternalServerError", "oops")
		},
		"garbage": func(func() (*http.Response, error)) (*http.Response, error) { return answer("<html>") },
		"without replies": func(send func() (*http.Response, error)) (*http.Response, error) {
			res, err := send()
			if err != nil {
				return nil, err
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			return nil, lost
		},
	} {
		for _, every := range []int{1, 7} { // of the requests while it refuses
			t.Run(fmt.Sprintf("%s, one in %d", name, every), func(t *testing.T) { refusing(t, fault, every) })
		}
	}
}

func refusing(t *testing.T, fault func(func() (*http.Response, error)) (*http.Response, error), every int) {
	p := nodes.DefaultPolicy()
	p.IdleDownFor, p.CooldownDown, p.CooldownUp = time.Minute, time.Minute, time.Minute
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}})
	b := fresh(t, component.DynamoDBLocal())
	b.cfg.Now = w.Clock().Now
	bad, requests, refused := false, 0, 0
	d := b.open(t, func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if requests++; bad && requests%every == 0 {
			refused++
			return fault(send)
		}
		return send()
	})
	c := w.Client("A", nil)
	r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: d.Store(), EventLog: d.EventLog(), Clock: w.Clock()})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	ticks := func(n int) {
		for k := range n {
			w.Advance(time.Minute)
			bad = k%5 == 2 || k%5 == 3
			if _, err := r.Tick(t.Context()); err != nil {
				if failed++; !bad {
					t.Errorf("a tick without refusals fails: %v", err)
				}
			}
			bad = false
		}
	}
	w.SetLoad(0.9)
	ticks(6)
	w.SetLoad(0.5)
	ticks(10)
	f := w.Fleet()
	if f.Available < 3 || f.Available != f.Alive {
		t.Errorf("after the load came %+v", f)
	}
	w.SetLoad(0.1)
	ticks(25)
	if f := w.Fleet(); f.Available != 2 || f.Alive != 2 {
		t.Errorf("after the load went %+v", f)
	}
	rec, err := d.Store().Load(t.Context())
	if err != nil || rec.ScalingInProgress || len(rec.Removals) > 0 {
		t.Errorf("at rest %+v, %v", rec, err)
	}
	if refused == 0 || every == 1 && failed == 0 {
		t.Errorf("%d requests refused, %d ticks failed: the test shows nothing", refused, failed)
	}
	judge(t, w)
}

// judge reads from the simulator's ledger alone that nothing was launched twice, nothing terminated undrained and nothing done late.
func judge(t *testing.T, w *sim.Simulator) {
	t.Helper()
	launched := map[string]string{}
	place := map[string]string{} // action and ordinal
	for _, e := range w.Ledger() {
		switch e.Kind {
		case sim.Launched:
			who := fmt.Sprintf("%s/%d", e.Request.ActionID, e.Request.Ordinal)
			if other, ok := place[who]; ok {
				t.Errorf("%s was launched as %s and as %s", who, other, e.Instance)
			}
			place[who], launched[e.Instance] = e.Instance, who
		case sim.Terminated:
			if e.Facts.Joined && (!e.Facts.Cordoned || e.Facts.Pods > 0) {
				t.Errorf("%s was terminated undrained: %+v", e.Instance, e.Facts)
			}
		case sim.TokenMismatch, sim.Expired:
			t.Errorf("%s: %s %s", e.Kind, e.Instance, e.Detail)
		}
	}
	if len(launched) == 0 {
		t.Error("nothing was launched: the test shows nothing")
	}
}

// TestATickAtRestMakesFewRequests counts what the documentation states.
func TestATickAtRestMakesFewRequests(t *testing.T) {
	p := nodes.DefaultPolicy()
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b", "c", "a"}})
	b := fresh(t, component.DynamoDBLocal())
	b.cfg.Now = w.Clock().Now
	ops, bytes := map[string]int{}, map[string]int64{}
	d := b.open(t, func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		ops[op]++
		bytes[op] += r.ContentLength
		return send()
	})
	c := w.Client("A", nil)
	r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: d.Store(), EventLog: d.EventLog(), Clock: w.Clock()})
	if err != nil {
		t.Fatal(err)
	}
	w.SetLoad(0.5)
	const ticks = 20
	for range ticks {
		w.Advance(time.Minute)
		if _, err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("in %d ticks %v, bytes sent %v", ticks, ops, bytes)
	if reads, writes := ops["GetItem"]+ops["Query"]+ops["BatchGetItem"], ops["UpdateItem"]+ops["PutItem"]; reads > 8*ticks || writes > 8*ticks {
		t.Errorf("%d reads and %d writes a tick", reads/ticks, writes/ticks)
	}
}
