package servertest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// lost are the streams that a group can lose, by how an event calls them. What messages
// a stream holds is lost with it, so those of the group have none left.
var lost = map[string]string{
	"KV_worker-heartbeats":  "bucket worker-heartbeats",
	"KV_stable-ids":         "bucket stable-ids",
	"KV_worker-assignments": "bucket worker-assignments",
	"jobs":                  "stream jobs",
	"jobs-retry":            "stream jobs-retry",
}

func quickLeases(c *partition.Config) {
	c.Lease.Heartbeat, c.Lease.TTL, c.Lease.IDTTL, c.Slots = 400*time.Millisecond, 2*time.Second, 6*time.Second, 16
	c.Retry = partition.Retry{KeepFailing: true}
}

// recreated reports whether a worker told that something was created again.
func (r *recorder) recreated(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == "resource-recreated" && e.Reason == what {
			return true
		}
	}
	return false
}

// TestLostResource: each bucket and stream is deleted under load, a
// worker is killed afterwards, and another one starts.
func TestLostResource(t *testing.T) {
	t.Parallel()
	for stream, name := range lost {
		t.Run("while workers run, "+name, func(t *testing.T) {
			t.Parallel()
			loseUnderLoad(t, oneServer(t), stream, name)
		})
		t.Run("while no worker runs, "+name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, oneServer(t), time.Millisecond, quickLeases)
			first := g.start("w0")
			await.That(t, "a worker settled", g.settled(first))
			g.publish(20, 2)
			g.check(0)
			first.stop()
			if err := <-first.done; err != nil {
				t.Fatal(err)
			}
			first.done <- nil
			if err := g.pub.DeleteStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			ws := []*runningWorker{g.start("w1"), g.start("w2")}
			select {
			case err := <-ws[0].done:
				t.Fatalf("a worker ends with %v", err)
			case err := <-ws[1].done:
				t.Fatalf("a worker ends with %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			await.That(t, "two workers settled", g.settled(ws...))
			g.publish(20, 2)
			g.check(0)
			if !g.rec.recreated(name) {
				t.Errorf("no event says that %s was created again", name)
			}
		})
	}
}

// loseUnderLoad deletes a stream that a group needs.
func loseUnderLoad(t *testing.T, on servers, stream, name string) {
	t.Helper()
	g := startGroup(t, on, time.Millisecond, quickLeases)
	pub := g.connect("operator")
	if err := partition.Open(pub, "worker").Expect(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	var ws []*runningWorker
	for i := range 3 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "three workers settled", g.settled(ws...))
	if err := partition.Open(pub, "worker").Override(t.Context(), partition.Override{Slot: 3, Worker: ws[1].Status().ID}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the override is in the map", func() bool { return ws[0].Status().Version > 1 })
	g.publish(50, 4)
	g.check(0)
	version := ws[0].Status().Version
	if err := g.pub.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	g.publish(50, 4)
	await.That(t, name+" is there again, and an event says so", func() bool { return g.rec.recreated(name) })
	back := time.Now()
	// The leader writes back what was set, from its memory. If it dies before, what was
	// set is lost; the death below is another one.
	await.That(t, "what was set is there again", func() bool {
		v, err := partition.Open(pub, "worker").Inspect(t.Context())
		return err == nil && v.Expected == 3 && len(v.Overrides) == 1
	})
	var alive []*runningWorker
	for i, w := range ws {
		if i == 2 {
			w.nc.Close() // as a kill does
		} else {
			alive = append(alive, w)
		}
	}
	g.publish(50, 4)
	g.check(2 * g.cfg.Slots)
	served := time.Now()
	alive = append(alive, g.start("w3"))
	await.That(t, "three workers settled again", g.settled(alive...))
	g.publish(50, 4)
	g.check(2 * g.cfg.Slots)
	v, err := partition.Open(pub, "worker").Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Map().Version < version || v.Expected != 3 || len(v.Overrides) != 1 {
		t.Errorf("map version %d of %d before, %d workers expected, %d overrides: what was set is lost", v.Map().Version, version, v.Expected, len(v.Overrides))
	}
	t.Logf("created again %v after its deletion; after a death beside it all is processed %v later", back.Sub(deleted).Round(time.Millisecond), served.Sub(back).Round(time.Millisecond))
}

// TestSeveralResourcesLost: several streams and buckets are deleted while no worker runs. The next
// worker provisions them again, and the group works on. What is left may have the claims of owners
// by maps with higher versions than those of a new group, so the next map must have a higher one
// still.
func TestSeveralResourcesLost(t *testing.T) {
	t.Parallel()
	const (
		ids, leases, assignments = "KV_stable-ids", "KV_worker-heartbeats", "KV_worker-assignments"
		messages, retries        = "jobs", "jobs-retry"
		events                   = "worker-events"
	)
	for name, lost := range map[string][]string{
		"the map and the messages":            {assignments, messages},
		"the map and the retry queue":         {assignments, retries},
		"the messages and the retry queue":    {messages, retries},
		"every bucket":                        {ids, leases, assignments},
		"every bucket and the messages":       {ids, leases, assignments, messages},
		"everything but the events":           {ids, leases, assignments, messages, retries},
		"everything but the names and leases": {assignments, messages, retries, events},
		"everything":                          {ids, leases, assignments, messages, retries, events},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loseWhileStopped(t, lost)
		})
	}
}

func loseWhileStopped(t *testing.T, deleted []string) {
	g := startGroup(t, oneServer(t), time.Millisecond, quickLeases, func(c *partition.Config) {
		c.Name, c.Stream, c.Subject = "worker", "jobs", "jobs.*.*"
	})
	ws := []*runningWorker{g.start("w0")}
	await.That(t, "a worker settled", g.settled(ws...))
	ws = append(ws, g.start("w1"))
	await.That(t, "two workers settled", g.settled(ws...))
	g.publish(20, 2)
	g.check(0)
	for _, w := range ws {
		w.stop()
		if err := <-w.done; err != nil {
			t.Fatal(err)
		}
		w.done <- nil
	}
	for _, stream := range deleted {
		if err := g.pub.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(stream, err)
		}
	}

	await.That(t, "a worker settled on what is left", g.settled(g.start("w2")))
	g.publish(20, 2)
	g.checkWithin(30*time.Second, 0)
	// Without any stream it looks like a new group.
	isNew := slices.Contains(deleted, "jobs") && slices.Contains(deleted, "jobs-retry") && slices.Contains(deleted, "worker-events")
	for _, stream := range deleted {
		if !isNew && !g.rec.recreated(lost[stream]) {
			t.Errorf("no event says that %s was created again", lost[stream])
		}
	}
}

// TestLostResourceOnACluster does the same where everything is on three servers.
func TestLostResourceOnACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, stream := range []string{"KV_worker-heartbeats", "KV_worker-assignments", "jobs"} {
		t.Run(lost[stream], func(t *testing.T) {
			on := c.forOne(t)
			on.change = func(c *partition.Config) {
				c.Name, c.Stream, c.Subject, c.Storage.Replicas = "worker", "jobs", "jobs.*.*", 3
			}
			loseUnderLoad(t, on, stream, lost[stream])
		})
	}
}

// TestDeletedGroup: a group that is deleted while nobody works stays deleted.
func TestDeletedGroup(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, quickLeases)
	w := g.start("w0")
	await.That(t, "a worker settled", g.settled(w))
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	w.done <- nil
	for stream := range lost {
		if err := g.pub.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	pub := g.connect("operator")
	if _, err := partition.Open(pub, "worker").Inspect(t.Context()); err == nil {
		t.Error("a group that is deleted can be looked at")
	}
	time.Sleep(time.Second)
	for stream := range lost {
		if _, err := g.pub.Stream(t.Context(), stream); err == nil {
			t.Errorf("%s is there again", stream)
		}
	}
}

// TestWorkerProvisions: a worker makes what is missing where a bucket is there and
// nothing is recorded in it.
func TestWorkerProvisions(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond)
	kv, err := g.pub.KeyValue(t.Context(), "worker-assignments")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "layout"); err != nil {
		t.Fatal(err)
	}
	w := g.start("w0")
	await.That(t, "a worker settled", g.settled(w))
	g.publish(20, 2)
	g.check(0)
}
