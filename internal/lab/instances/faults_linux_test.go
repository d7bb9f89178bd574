package instances_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/instances"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

var faultTable = flag.String("faults.table", "", "write the table of faults on real nodes to this file")

// fault is something that goes wrong with a real node.
type fault struct {
	what string                              // in the table
	want nodes.FaultName                     // by which it is to be explained
	boot func(*lab.Machine)                  // makes a machine that has it; nil: it comes later
	do   func(*testing.T, *faultRig, string) // brings it about on an instance; nil: boot does

	instance string
	since    time.Time // it was brought about
	named    time.Duration
	repaired time.Duration
	saw      string
}

// faultRig is a node plane whose workers are real nodes, some of them with faults.
type faultRig struct {
	region   *region.Region
	lab      *lab.Lab
	machines *machines.Machines
	config   nodes.Config
	plane    *nodes.Reconciler

	mu      sync.Mutex
	pending []*fault // of the next machines; nil is none
	shown   string   // the last explanation
}

// The node plane's times in these tests. Those that a fault is named and repaired after
// depend on them.
const (
	testJoinTimeout = 50 * time.Second
	testNotReady    = 60 * time.Second // the least that the policy allows
)

func faultPolicy(workers int) nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster, p.MinWorkers, p.MaxWorkers, p.MaxBatchUp = "local", workers, 20, 12
	p.CooldownUp, p.CooldownDown, p.IdleDownFor = time.Second, time.Hour, time.Hour
	p.JoinTimeout, p.NotReadyFor, p.DrainTimeout, p.ScaleDownStuck = testJoinTimeout, testNotReady, 40*time.Second, 60*time.Second
	p.InstanceTypes, p.Spot = []string{"t3.medium"}, false
	return p
}

func newFaultRig(t *testing.T, workers int, faults ...*fault) *faultRig {
	t.Helper()
	r := &faultRig{pending: faults}
	booted := instances.New(instances.Options{Region: regionName, Prepare: r.prepare})
	var err error
	r.region, err = region.Start(region.Options{Sim: sim.Options{Policy: faultPolicy(workers), Zones: []string{zone}}, Dir: t.TempDir(), Machines: booted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.region.Close(), booted.Close()); err != nil {
			t.Error(err)
		}
	})
	if r.machines, err = machines.NewReal(r.region); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	r.lab = labtest.Start(t, lab.Options{RealNodes: true, AWS: r.region.AWSURL, Scrape: r.machines.Scrape()})
	booted.Attach(r.lab, r.region.Simulator)
	r.region.AWS.PutParameter(tokenName, r.lab.JoinToken)
	r.region.AWS.PutParameter(wrongTokenName, "abcdef.0123456789abcdef")
	if err := r.machines.Attach(r.lab); err != nil {
		t.Fatal(err)
	}
	r.config = r.configure(t)
	r.want(t, workers)
	return r
}

// configure returns the configuration of a node plane of real adapters, for which EC2 is
// simulated.
func (r *faultRig) configure(t *testing.T) nodes.Config {
	t.Helper()
	config, err := r.region.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config.Cloud, config.Template, err = r.region.CloudWith(func(o *ec2.Config) {
		o.UserData, o.Join = ec2.UserDataK3s, ec2.Join{Server: r.lab.Server, TokenRef: "ssm:" + tokenName}
	})
	if err != nil {
		t.Fatal(err)
	}
	account, err := r.machines.Account(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if config.Cluster, err = kube.New(account, kube.Options{}); err != nil {
		t.Fatal(err)
	}
	if config.Signals, err = r.machines.Signals(t.Context(), config.Policy); err != nil {
		t.Fatal(err)
	}
	return config
}

// want has the node plane keep another number of workers.
func (r *faultRig) want(t *testing.T, workers int) {
	t.Helper()
	r.config.Policy = faultPolicy(workers)
	var err error
	if r.plane, err = nodes.New(r.config); err != nil {
		t.Fatal(err)
	}
}

// prepare gives the next machine its fault.
func (r *faultRig) prepare(m *lab.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return
	}
	f := r.pending[0]
	r.pending = r.pending[1:]
	if f == nil {
		return
	}
	f.instance, f.since = m.ID, time.Now()
	if f.boot != nil {
		f.boot(m)
	}
}

// tick lets the node plane work once a second until something holds of what it explains.
func (r *faultRig) tick(t *testing.T, what string, until func(text string, page console.NodePlane) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for {
		report, err := r.plane.Tick(ctx)
		for _, e := range report.Events {
			if e.Kind != "decision" && e.Kind != "tick" && e.Kind != "scaleUp.waiting" && e.Kind != "scaleUp.disagreement" {
				t.Logf("%s %s %s %.200s", e.At.Format("04:05"), e.Kind, e.Instance, e.Message)
			}
		}
		text, page := r.explained(t, report)
		holds := until(text, page)
		if holds == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v; the last tick: %v, explained as\n%s", what, holds, err, text)
		case <-time.After(time.Second):
		}
	}
}

// explained returns what `muster nodes explain` writes about a tick, and what the console
// shows.
func (r *faultRig) explained(t *testing.T, report nodes.Report) (string, console.NodePlane) {
	t.Helper()
	tick, err := explain.About(new(connect.Deciders).For, report.Events)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := explain.WriteTick(&b, explain.Style{}, tick, time.Now()); err != nil {
		t.Fatal(err)
	}
	if tick.Snapshot == nil {
		return b.String(), console.NodePlane{}
	}
	return b.String(), console.NodePlaneOf(*tick.Snapshot, nil)
}

// names waits until every fault is named, by the explanation and by the console.
func (r *faultRig) names(t *testing.T, faults ...*fault) {
	t.Helper()
	r.tick(t, "naming faults", func(text string, page console.NodePlane) error {
		var missing []error
		for _, f := range faults {
			if f.named == 0 {
				f.look(text, page)
			}
			if f.named == 0 {
				missing = append(missing, fmt.Errorf("%s (%s) is not named %s", f.what, f.instance, f.want))
			}
		}
		return errors.Join(missing...)
	})
}

// look notes when the fault is named.
func (f *fault) look(text string, page console.NodePlane) {
	explained := false
	for line := range strings.Lines(text) {
		if strings.Contains(line, f.instance) && strings.Contains(line, "  "+string(f.want)+"  ") {
			explained = true
			f.saw = strings.TrimSpace(line)
		}
	}
	for _, n := range page.Nodes {
		if n.Instance == f.instance && n.Fault == string(f.want) && explained {
			f.named = time.Since(f.since)
		}
	}
}

// repairs waits until the faults' instances are gone, with their machines and nodes, and as
// many workers as wanted are Ready.
func (r *faultRig) repairs(t *testing.T, workers int, faults ...*fault) {
	t.Helper()
	r.tick(t, "repairing", func(string, console.NodePlane) error {
		fleet := r.machines.Fleet()
		for _, f := range faults {
			s, err := r.lab.Inspect(t.Context(), f.instance)
			if err != nil {
				return err
			}
			if s.Running || r.region.Simulator.Instance(f.instance).Alive() {
				return fmt.Errorf("%s (%s) runs", f.what, f.instance)
			}
		}
		if fleet.Available < workers || fleet.StaleNodes > 0 || fleet.Alive != fleet.Ready {
			return fmt.Errorf("the fleet is %+v", fleet)
		}
		for _, f := range faults {
			f.repaired = time.Since(f.since)
		}
		return nil
	})
}

// nothingLeft checks that the record has nothing of what is over.
func (r *faultRig) nothingLeft(t *testing.T) {
	t.Helper()
	r.tick(t, "coming to rest", func(string, console.NodePlane) error {
		record, err := r.config.Store.Load(t.Context())
		switch {
		case err != nil:
			return err
		case record.ScalingInProgress || len(record.Removals) > 0:
			return fmt.Errorf("the record has %v and removals %+v", record.Actions(), record.Removals)
		case len(record.Joined) != r.machines.Fleet().Ready:
			return fmt.Errorf("the record remembers %v", record.Joined)
		}
		return nil
	})
}

// hand is the begin of user data by which a test can have commands run on the machine later.
const hand = `#!/bin/bash
(while sleep 0.5; do [ -e /run/do ] && mv /run/do /run/done && bash /run/done; done) </dev/null >/dev/console 2>&1 &
`

// run has a machine run commands, in the background.
func (r *faultRig) run(t *testing.T, instance, commands string) {
	t.Helper()
	s, err := r.lab.Inspect(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/proc", fmt.Sprint(s.PID), "root/run")
	if err := os.WriteFile(filepath.Join(path, "do.new"), []byte(commands), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(path, "do.new"), filepath.Join(path, "do")); err != nil {
		t.Fatal(err)
	}
}

const wrongTokenName = "/muster/wrong-token"

// edit makes a boot that replaces a text of the user data.
func edit(old, with string) func(*lab.Machine) {
	return func(m *lab.Machine) {
		if !strings.Contains(m.UserData, old) {
			panic(old + " is not in the user data")
		}
		m.UserData = strings.Replace(m.UserData, old, with, 1)
	}
}

// TestRealNodeFaults breaks real nodes. `muster nodes explain` names what is wrong with
// each, as the console does, and the node plane replaces it.
func TestRealNodeFaults(t *testing.T) {
	joining := []*fault{
		{what: "wrong token", want: nodes.FaultToken, boot: edit("token_name='"+tokenName+"'", "token_name='"+wrongTokenName+"'")},
		{what: "disappears during its user data", want: nodes.FaultGone, boot: edit("set -euo pipefail", "sleep infinity"),
			do: func(_ *testing.T, r *faultRig, id string) { r.region.Simulator.TakeAway(id) }},
	}
	const healthy = 3
	var order []*fault
	for range healthy {
		order = append(order, &fault{boot: func(m *lab.Machine) { m.UserData = hand + m.UserData }})
	}
	first := order[0]
	r := newFaultRig(t, healthy+len(joining), append(order, joining...)...)

	r.tick(t, "launching", func(string, console.NodePlane) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.pending) > 0 {
			return fmt.Errorf("%d are to be launched", len(r.pending))
		}
		return nil
	})
	for _, f := range joining {
		if f.do != nil {
			f.since = time.Now()
			f.do(t, r, f.instance)
		}
	}
	r.names(t, joining...)
	r.want(t, healthy)
	r.repairs(t, healthy, joining...)

	killed := &fault{what: "kubelet killed, and not started again", want: nodes.FaultKubelet, instance: first.instance, since: time.Now()}
	r.run(t, first.instance, "pkill -f k3s-install.sh; pkill -9 -f 'lab kubelet'")
	r.names(t, killed)
	r.repairs(t, healthy, killed)
	r.nothingLeft(t)
	for _, f := range append(joining, killed) {
		t.Logf("%s: named after %.1f s, repaired after %.1f s: %s", f.what, f.named.Seconds(), f.repaired.Seconds(), f.saw)
	}
}
