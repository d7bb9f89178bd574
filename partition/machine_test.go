package partition

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

var updateScripts = flag.Bool("scripts.update", false, "write what the interaction scripts show now into their files")

// TestInteractionScripts plays the scripts in testdata/scripts: each command,
// and below its line what the machines of the group told while it ran, in order.
// The network has a latency and no faults.
func TestInteractionScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(want))
			if *updateScripts {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs; look at it, and write it with -scripts.update if it is right. Now it shows:\n%s", f, got)
			}
		})
	}
}

// scriptPlayer runs the commands of one script.
type scriptPlayer struct {
	t   *testing.T
	s   *sim
	out bytes.Buffer
}

// playScript returns the script with the output of each command as it is now.
// Lines that begin with "#" are comments, with "> " commands; others are output.
func playScript(t *testing.T, text string) string {
	s := newSim(1, false)
	s.cfg.Slots, s.fine, s.cfg.Storage.Replicas = 6, 12, 1
	s.cfg.Lease.SuspicionGrace, s.cfg.Lease.SuspicionMargin, s.cfg.Delivery.AckWait = 500*time.Millisecond, 150*time.Millisecond, 10*time.Second
	s.cfg.Lease.Heartbeat, s.cfg.Lease.TTL, s.cfg.Lease.Margin = time.Second, 3*time.Second, 750*time.Millisecond
	s.cfg.Rebalance.ColdWindow, s.cfg.Rebalance.PlannedWindow = 3*time.Second, 2*time.Second
	s.check = newSimChecker(s)
	s.srv = newSimServer(s)
	s.faults = simFaults{latency: time.Millisecond, reconnect: 100 * time.Millisecond}
	s.quiet = true
	p := &scriptPlayer{t: t, s: s}
	s.observe = p.saw
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"), line == "":
			fmt.Fprintln(&p.out, line)
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&p.out, line)
			p.command(strings.Fields(line[2:]))
		}
	}
	if v := s.check.violation; v != nil {
		t.Errorf("%s: %s", v.name, v.text)
	}
	return p.out.String()
}

func (p *scriptPlayer) command(words []string) {
	s := p.s
	arg := ""
	if len(words) > 1 {
		arg = words[1]
	}
	switch words[0] {
	case "start":
		n, _ := strconv.Atoi(arg)
		for range n {
			s.startWorker()
			s.run(s.now+10*time.Millisecond, nil)
		}
	case "run":
		d, err := time.ParseDuration(arg)
		if err != nil {
			p.t.Fatal(err)
		}
		s.run(s.now+d, nil)
	case "expect":
		n, _ := strconv.Atoi(arg)
		s.expect(n)
	case "reshard":
		n, _ := strconv.Atoi(arg)
		s.setLayout(n)
	case "outage": // of the server, for so long
		d, err := time.ParseDuration(arg)
		if err != nil {
			p.t.Fatal(err)
		}
		s.srv.stop()
		s.run(s.now+d, nil)
		s.srv.start()
	case "forget": // the end of a key
		for _, b := range s.srv.buckets {
			if kv := b.last[arg]; kv != nil {
				kv.expires = 0
			}
		}
	case "stale-lease": // of a worker that has ended, by a replica that missed its end
		b := s.srv.buckets[s.cfg.bucketLeases()]
		b.stale = &simKV{key: arg, rev: 1, value: mustJSON(leaseValue{Schema: valueSchema, ID: arg, Claim: 1, Weight: 1, State: state.Stable})}
	case "behind": // the replica that answers lists
		s.srv.behind = true
	case "crash":
		p.worker(arg).crash()
	case "leave":
		p.worker(arg).step(leaveInput{})
	case "drain": // for a time; 0s: no more
		d, err := time.ParseDuration(words[2])
		if err != nil {
			p.t.Fatal(err)
		}
		p.worker(arg).step(drainInput{until: p.worker(arg).clock().Add(d)})
	case "stop":
		p.worker(arg).stop()
	case "continue":
		p.stopped().goOn()
	case "steal": // the lease, as a leader does that takes the worker for dead
		s.srv.apply(p.worker(arg), kvEffect{op: opDelete, bucket: s.cfg.bucketLeases(), key: arg, rev: p.worker(arg).m.membership.rev})
	case "weigh": // each slot; before the first start, or again
		s.weights = nil
		for _, w := range words[1:] {
			n, err := strconv.ParseUint(w, 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			s.weights = append(s.weights, n)
		}
		s.cfg.Rebalance.Weights = func(context.Context) (map[string]uint64, error) { return nil, nil }
		s.cfg.Rebalance.WeightsInterval = 10 * time.Second
	case "override": // "0=sim-2" each; without any, all overrides are removed
		var overrides []Override
		for _, w := range words[1:] {
			var override Override
			if _, err := fmt.Sscanf(w, "%d=%s", &override.Slot, &override.Worker); err != nil {
				p.t.Fatalf("override %q: %v", w, err)
			}
			overrides = append(overrides, override)
		}
		s.writeOverrides(overrides)
	case "map":
		p.showMap()
	default:
		p.t.Fatalf("no command %q", words[0])
	}
}

func (p *scriptPlayer) worker(id string) *simWorker {
	for _, w := range p.s.live() {
		if w.m.self.ID == id {
			return w
		}
	}
	p.t.Fatalf("no worker %q", id)
	return nil
}

func (p *scriptPlayer) stopped() *simWorker {
	i := slices.IndexFunc(p.s.workers, func(w *simWorker) bool { return w.stopped })
	if i < 0 {
		p.t.Fatal("nobody is stopped")
	}
	return p.s.workers[i]
}

func (p *scriptPlayer) showMap() {
	a := p.s.check.current
	if a == nil {
		fmt.Fprintln(&p.out, "no map")
		return
	}
	fmt.Fprintf(&p.out, "version %d:", a.Version)
	for s := range a.Owner {
		fmt.Fprintf(&p.out, " %v@%d", a.owner(s), a.Since[s])
		if mv, ok := a.Moves[s]; ok {
			fmt.Fprintf(&p.out, "->%v", a.member(mv.Next))
		}
		if a.Taking[s] {
			fmt.Fprint(&p.out, "!")
		}
	}
	fmt.Fprintln(&p.out)
}

// saw writes an event down: those that tell the story.
func (p *scriptPlayer) saw(w *simWorker, e event.Event) {
	var what string
	switch e.Kind {
	case event.Started, event.StateChanged, event.MapReceived, event.SlotReleasing, event.SlotReleased, event.Assigned:
		return
	case event.Elected:
		what = e.Peer
	case event.WorkerJoined, event.WorkerLeaving, event.WorkerGone, event.WorkerSuspected:
		what = strings.TrimSpace(e.Peer + " " + e.Reason)
	case event.WindowStarted:
		what = e.Reason
	case event.WindowDone:
		what = fmt.Sprintf("%s, %d workers", e.Reason, e.After)
	case event.Standby:
		what = fmt.Sprintf("%d wanted", e.After)
	case event.WorkerRestarting, event.WorkerAwaited, event.WorkerRejoined:
		what = e.Peer
	case event.Planned:
		what = fmt.Sprintf("%s, %d slots move", e.Reason, e.Count)
	case event.MapPublished, event.Rebalanced:
		what = fmt.Sprintf("version %d", e.Version)
	case event.SlotAcquired:
		what = fmt.Sprintf("%d %s", e.Slot, e.Reason)
	case event.Resharded:
		what = fmt.Sprintf("%d to %d slots", e.Before, e.After)
	case event.SlotTakenOver:
		what = fmt.Sprintf("%d for %s", e.Slot, e.Peer)
	default:
		what = e.Reason
	}
	fmt.Fprintf(&p.out, "%6.2f %-6s %s\n", p.s.now.Seconds(), e.Worker, strings.TrimSpace(string(e.Kind)+" "+what))
}

// A release that was asked for under an earlier name must not count now.
func TestAReleaseOfAnEarlierNameIsIgnored(t *testing.T) {
	t.Parallel()
	m, _ := joinedMachine(t)
	m.own.slots[0] = &slotState{phase: phaseReleasing, version: 1}
	m.step(m.now, slotReleasedInput{place: m.own.at(0), claim: m.self.Claim - 1})
	if st := m.own.slots[0]; st == nil || st.phase != phaseReleasing {
		t.Fatalf("the slot is %+v, want releasing yet", st)
	}
	m.step(m.now, slotReleasedInput{place: m.own.at(0), claim: m.self.Claim})
	if st := m.own.slots[0]; st != nil && st.phase == phaseReleasing {
		t.Fatal("the slot is not released by the release of its own name")
	}
}

// joinedMachine returns a machine that has joined as sim-0/7, of a group of two
// with a map in which each owns two slots.
func joinedMachine(t testing.TB) (*machine, *Assignment) {
	t.Helper()
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4}.resolve()
	m := newMachine(cfg, "p1")
	now := simEpoch
	m.step(now, startInput{})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forNames}})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forClaim, key: "sim-0"}, gotRev: 7})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forJoin, key: "sim-0", start: now}, gotRev: 1})
	a := &Assignment{Schema: mapSchema, Version: 3, Epoch: 1, Leader: Member{"sim-1", 8}, Layout: 1, Slots: 4,
		Workers: []Member{{"sim-0", 7}, {"sim-1", 8}}, Owner: []int32{0, 0, 1, 1}, Since: []uint64{1, 1, 1, 1},
		Moves: map[int]plannedMove{0: {Next: 1, Version: 3}, 2: {Next: 0, Version: 3}}}
	if err := a.validate(); err != nil {
		t.Fatal(err)
	}
	m.step(now, leaderInput{leader: Member{"sim-1", 8}, rev: 2})
	m.step(now, mapInput{a, 5})
	if m.stage != stageJoined || !m.lease.valid {
		t.Fatalf("stage %d, trusted %v", m.stage, m.lease.valid)
	}
	return m, a
}

// FuzzPeerMessage: whatever comes on a worker's subject, it does not panic, and
// only two messages give it a slot: a release of the old owner for this very
// move, and a grant for a slot that the map says is its own.
func FuzzPeerMessage(f *testing.F) {
	for _, kind := range []peerKind{peerPrepared, peerReleased, peerHolding, peerGrant, peerWant, peerAlone, peerAskOld, peerOldReleased} {
		f.Add(mustJSON(peerMessage{Schema: valueSchema, Kind: kind, From: Member{"sim-1", 8}, To: Member{"sim-0", 7}, Slots: []slotMark{{Slot: 2, Version: 3}, {Slot: 0, Version: 3}}}))
		f.Add(mustJSON(peerMessage{Schema: valueSchema, Kind: kind, From: Member{"sim-9", 1}, To: Member{"sim-0", 7}, Slots: []slotMark{{Slot: -1, Version: 3}, {Slot: 4000, Version: 1 << 60, Forced: true}}}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var msg peerMessage
		if json.Unmarshal(data, &msg) != nil {
			return
		}
		m, a := joinedMachine(t)
		told := peerMessage{Schema: msg.Schema, Kind: msg.Kind, From: msg.From, Slots: slices.Clone(msg.Slots)}
		for _, e := range m.step(m.now, peerInput{msg}) {
			h, ok := e.(holdEffect)
			if !ok {
				continue
			}
			released := told.Kind == peerReleased && told.From == a.owner(h.slot) && a.Moves[h.slot].Next == 0 &&
				slices.ContainsFunc(told.Slots, func(s slotMark) bool {
					return s.Slot == h.slot && s.Version == a.Moves[h.slot].Version && !s.Forced
				})
			if !released {
				t.Errorf("%s makes the worker hold slot %d", data, h.slot)
			}
		}
		if m.cur != a {
			t.Errorf("%s changes the map", data)
		}
	})
}
