package handoff

import (
	"fmt"
	"strings"
	"time"
)

// This file is the one table of all ways to publish, consume and acknowledge, each in its best
// configuration.

// Matrix is what the one table has: every contender with one replica and with three, each with
// the default sync and with always. Quick ones have a small load, and say nothing but that every
// contender works. only selects as for Turns.
func Matrix(runs int, quick bool, only string) []Turn {
	load := Load{Rate: 500, Press: 1000, Work: 20 * time.Millisecond, WorkSpread: 20 * time.Millisecond, Backlog: 200_000, Crash: 6 * time.Second, Quiet: ackWait + 2*time.Second}
	k := Case{Keys: 2400, Slots: 512, Before: 30, After: 45}
	if quick {
		k = Case{Keys: 240, Slots: 512, Before: 6, After: 9}
		load.Rate, load.Press, load.Backlog, load.Crash = 100, 100, 32_000, time.Second
	}
	var turns []Turn
	for _, replicas := range []int{1, 3} {
		for _, sync := range []string{defaultSync, alwaysSync} {
			t := Turn{Case: k, Repetitions: runs, Load: load}
			t.Load = t.Load.lighter(replicas, sync)
			for _, c := range matrix(replicas, sync) {
				if strings.Contains(c.Name, only) {
					t.Contenders = append(t.Contenders, c)
				}
			}
			if t.Contenders != nil {
				turns = append(turns, t)
			}
		}
	}
	return turns
}

// lighter returns the load for servers that share the machine, or sync every write.
func (l Load) lighter(replicas int, sync string) Load {
	by := 1
	if replicas > 1 {
		by *= 2
	}
	if sync == alwaysSync {
		by *= 4
	}
	l.Rate, l.Press, l.Backlog = l.Rate/by, l.Press/by, l.Backlog/by
	return l
}

// matrix returns the contenders with these replicas and this sync. With one replica that syncs
// every write, publishers on NATS use atomic batches: the server syncs once for each.
func matrix(replicas int, sync string) []Contender {
	all := []Contender{
		{Name: "raw JetStream, 1 stream", static: true, start: startRaw(1, rawConsumers)},
		{Name: "raw JetStream, 8 streams", static: true, start: startRaw(8, rawConsumers)},
	}
	// About 64 to 80 consumers a stream, and with one replica, where a stream costs little, 16.
	shapes := []struct{ slots, shards int }{{64, 0}, {512, 8}, {1280, 16}}
	if replicas == 1 {
		all = append(all, Contender{Name: "raw JetStream, 32 streams", static: true, start: startRaw(32, rawConsumers/4)},
			Contender{Name: "muster, 512 slots, defaults", slots: 512, start: startMuster})
		shapes = append(shapes, struct{ slots, shards int }{512, 32})
	}
	for _, m := range shapes {
		name := fmt.Sprintf("muster, %d slots, %d shards, 64 in flight", m.slots, max(1, m.shards))
		all = append(all, Contender{Name: name, slots: m.slots, shards: m.shards, inFlight: 64, start: startMuster})
	}
	all = append(all, Contender{Name: "recreated, drained first", start: startRecreated(true)})
	for i := range all {
		all[i].batched = replicas == 1 && sync == alwaysSync
	}
	fast := kafkaSetting{next: true, flush: sync == alwaysSync}.fast()
	all = append(all,
		Contender{Name: "Kafka, franz-go, KIP-848, fast", kafka: fast, start: startFranz},
		Contender{Name: "Kafka, Java, KIP-848, fast", kafka: fast, start: startJava})
	for i := range all {
		all[i].Replicas, all[i].Sync = replicas, sync
	}
	return all
}
