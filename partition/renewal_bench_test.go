package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// leaderOf returns the leader of a group at rest: `workers` workers, each with the same number
// of slots and a lease that was seen.
func leaderOf(t testing.TB, workers int) *machine {
	t.Helper()
	const slotsEach = 8
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: workers * slotsEach}.resolve()
	m := newMachine(cfg, "p1")
	now := simEpoch
	m.step(now, startInput{})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forNames}})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forClaim, key: "sim-0"}, gotRev: 1})
	m.step(now, kvInput{kvEffect: kvEffect{purpose: forJoin, key: "sim-0", start: now}, gotRev: 1})

	a := &record.Assignment{Schema: record.MapSchema, Version: 1, Epoch: 2, Leader: m.self, Layout: 1, Slots: cfg.Slots}
	for i := range workers {
		a.Workers = append(a.Workers, record.Process{ID: fmt.Sprintf("sim-%d", i), Claim: uint64(i + 1)})
		for range slotsEach {
			a.Owner, a.Since = append(a.Owner, int32(i)), append(a.Since, 1)
		}
	}
	m.step(now, mapInput{a, 3})
	m.election.won(m.self, 2)
	m.leaderLease = leaderLease{held: true, epoch: 2, rev: 2, start: now, due: now.Add(time.Second)}
	m.lead.begin(suspicion{})
	m.lead.maps.taken()
	for i := range workers {
		m.step(now, renewalOf(m, i, uint64(i+1)))
	}
	m.step(now, leasesSyncedInput{watch: m.lead.roster.watches})
	if !m.lead.roster.synced || !m.mayAct() || len(m.lead.absentees.absent) != 0 {
		t.Fatal("it does not lead a group at rest")
	}
	return m
}

// renewalOf is a renewal of the worker with this number.
func renewalOf(m *machine, worker int, rev uint64) leaseInput {
	lease := record.Heartbeat{ID: fmt.Sprintf("sim-%d", worker), Claim: uint64(worker + 1), Version: 1, MapSchema: record.MapSchema, Weight: 1}
	return leaseInput{watch: m.lead.roster.watches, id: lease.ID, rev: rev, at: m.now, value: lease}
}

// BenchmarkLeaderRenewal measures what one renewal of a worker's lease costs the leader, with
// the time of the next wake: a group of W workers has W/2 of them a second. The ratio is that to
// the smallest group of the run.
func BenchmarkLeaderRenewal(b *testing.B) {
	var least float64
	for _, workers := range []int{30, 150, 500, 1000, 2000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			m := leaderOf(b, workers)
			rev := uint64(workers)
			inputs := make([]leaseInput, workers)
			for i := range inputs {
				inputs[i] = renewalOf(m, i, 0)
			}
			n := 0
			for b.Loop() {
				rev++
				in := inputs[n%workers]
				in.rev = rev
				m.step(m.now, in)
				m.wake()
				n++
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if least == 0 {
				least = ns
			}
			b.ReportMetric(ns/least, "x-of-30")
		})
	}
}
