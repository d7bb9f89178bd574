package gem

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/defender/secs"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestHost_fullPath: a fault of equipment becomes a T-chart, a verdict, an alarm, and a command
// to the equipment.
func TestHost_fullPath(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	nc := natstest.Connect(t, server.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fdc.db")
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	judge(t, server.URL(), path, store)

	e := startEquipment(t, nil)
	p := newProcess(e, 0, 2)
	plan := planFor(t, 1, 2, 1, e.address)
	c := plan.Types["etch"].Chambers["c1"]
	c.Step, c.OnAlarm = "", Response{Terminal: true, Command: "HOLD"}
	plan.Types["etch"].Chambers["c1"] = c
	r := newRig(t, plan)
	collector, err := collect.New(store, nc)
	if err != nil {
		t.Fatal(err)
	}
	r.host = New(Config{Plan: plan, Ledger: openLedger(t, r.ledger), Store: store, Report: r.note,
		Taker: ingest.New(ingest.Config{Store: store, Publisher: ingest.Through(collector)})})
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.host.Run(ctx) }()
	sub, err := nc.Subscribe("dc-alarm.>", func(m *nats.Msg) {
		var notice defender.AlarmNotice
		if err := json.Unmarshal(m.Data, &notice); err != nil {
			t.Error(err)
		}
		r.host.Respond(ctx, notice)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	e.traced(1)
	const normal = 40
	for n := range normal + 1 {
		level := 100.0
		if n == normal {
			level = 200
		}
		wave(p, fmt.Sprintf("r%02d", n), n, level)
	}
	r.reported(Responded, "etch1:c1/r40: message to the terminal")
	r.reported(Responded, "etch1:c1/r40: command HOLD")
	r.stop()
	if got := r.all(Responded); len(got) != 2 {
		t.Errorf("the equipment was told %q", got)
	}
	t.Logf("on the terminal: %q; commands: %q", e.terminal, e.commands)
}

// judge runs a defender until the test ends.
func judge(t *testing.T, url, path string, store defender.Store) {
	t.Helper()
	d, err := service.Open(t.Context(), service.Options{NATS: url, Store: path, Slots: 16, LogFile: filepath.Join(t.TempDir(), "log")}, store)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = d.Close()
	})
}

// wave does a run of two sensors around a level, which scatter from run to run.
func wave(p *process, name string, n int, level float64) {
	scatter := func(i, k int) float64 { return math.Mod(float64(i*7919+k*104729)*0.6180339887, 1) - 0.5 }
	sample := func(k int) {
		for s := range p.sensors {
			v := level + 2*scatter(n, s) + scatter(n*1000+k, s)
			p.e.set(sensorID+uint32(s), secs.Float(v))
		}
		p.sample++
		p.e.tick(period)
	}
	sample(0)
	p.begin(name, 0)
	for k := range 60 {
		sample(k + 1)
	}
	p.e.event(endEvent)
	sample(61)
}
