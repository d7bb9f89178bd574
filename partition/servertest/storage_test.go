package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/partition/state"
)

// limited is a server for one group that may keep only that number of bytes.
func limited(t *testing.T, maxStore int64) servers {
	t.Helper()
	srv := natstest.Start(t, natstest.MaxStore(maxStore))
	return servers{url: srv.URL(), change: func(c *partition.Config) { c.Name, c.Stream, c.Subject = "worker", "jobs", "jobs.*.*" }}
}

// fill publishes large messages until the servers refuse keys in a row, and returns why.
func (g *group) fill(keys, most int) error {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), await.Patience)
	defer cancel()
	padding := strings.Repeat("x", 50<<10)
	var last error
	for refused, k := 0, 0; refused < most; k = (k + 1) % keys {
		key := fmt.Sprintf("a%d.b%d", k, k%3)
		n := g.n[key] + 1
		msg := &nats.Msg{Subject: strings.Replace(g.cfg.Subject, "*.*", key, 1), Data: fmt.Append(nil, n), Header: nats.Header{"Padding": {padding}}}
		try, stop := context.WithTimeout(ctx, 2*time.Second)
		_, err := g.pub.PublishMsg(try, msg, jetstream.WithMsgID(fmt.Sprint(key, " ", n)))
		stop()
		switch {
		case err == nil:
			g.n[key], refused = n, 0
		case ctx.Err() != nil:
			g.t.Fatalf("publishing message %d of %s: %v", n, key, err)
		default:
			refused, last = refused+1, err
		}
	}
	return last
}

// leasesLost counts the workers that have lost their lease. A slow machine makes one pause, and no more.
func (r *recorder) leasesLost() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == event.IdentityLost || e.Kind == event.WorkerGone {
			n++
		}
	}
	return n
}

// TestFullStorage: publishers fill the storage while handlers are held up.
func TestFullStorage(t *testing.T) {
	t.Parallel()
	t.Run("the backlog drains by itself, and no lease is lost", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases)
		ws := []*runningWorker{g.start("w0"), g.start("w1")}
		await.That(t, "two workers settled", g.settled(ws...))
		held := make(chan struct{})
		g.rec.mu.Lock()
		g.rec.hold = held
		g.rec.mu.Unlock()
		refused := g.fill(40, 10)
		t.Logf("%d messages stored; then: %v", g.published(), refused)
		var api *jetstream.APIError
		if !partition.IsFull(refused) || !errors.As(refused, &api) || api.ErrorCode != 10077 {
			t.Errorf("publishers are refused with %v, want that the stream's maximum bytes are exceeded", refused)
		}
		time.Sleep(3 * g.cfg.Lease.TTL) // of the full storage
		if n := g.rec.leasesLost(); n > 0 {
			t.Errorf("%d leases were lost while the storage was full", n)
		}
		for _, w := range ws {
			if s := w.Status(); s.Refused != "" {
				t.Errorf("a lease is refused: %s", s.Refused)
			}
		}
		g.rec.mu.Lock()
		g.rec.hold = nil
		g.rec.mu.Unlock()
		close(held)
		g.check(0)
		g.publish(40, 1)
		g.check(0)
	})
}

// TestRefusedWrites: the storage is full and nothing is limited, as in a group of an earlier version or beside a stream without a limit.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	g := startGroup(t, limited(t, 64<<20), 0, quickLeases, func(c *partition.Config) { c.Storage.MaxBytes = -1 })
	ws := []*runningWorker{g.start("w0"), g.start("w1")}
	await.That(t, "two workers settled", g.settled(ws...))
	await.That(t, "it begins without a reason for concern", func() bool {
		v := g.look(t)
		return v.State() == state.Stable && v.Report().Why == ""
	})
	if _, err := g.pub.CreateStream(t.Context(), jetstream.StreamConfig{Name: "foreign", Subjects: []string{"foreign"}}); err != nil {
		t.Fatal(err)
	}
	filled := time.Now()
	for {
		if _, err := g.pub.Publish(t.Context(), "foreign", make([]byte, 256<<10)); partition.IsFull(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	await.That(t, "workers say that their writes are refused", func() bool {
		s := ws[0].Status()
		return !s.RefusedSince.IsZero() && strings.Contains(s.Refused, "insufficient resources") && s.State == state.Degraded
	})
	if s := ws[0].Status(); s.RefusedSince.Before(filled.Add(-g.cfg.Lease.TTL)) || s.LeaseRenewed.After(s.RefusedSince) {
		t.Errorf("refused since %v, renewed at %v, filled at %v", s.RefusedSince, s.LeaseRenewed, filled)
	}
	var r report.Group
	await.That(t, "a look says why", func() bool {
		v := g.look(t)
		// By the age that the look itself tells: how long the filling or the look took says nothing of the leases.
		ended := g.cfg.Lease.TTL + 3*time.Second // and a second for what the server rounds
		if r = v.Report(); r.State == state.Stable && r.Workers[0].LeaseAge > ended.Seconds() {
			t.Fatalf("STABLE with leases of %v s", r.Workers[0].LeaseAge)
		}
		return strings.Contains(r.Why, "no lease was written for") && strings.Contains(r.Why, "insufficient resources")
	})
	if r.State != state.Degraded || r.LeaderAge < 2 || r.Workers[0].LeaseAge < 2 || r.Workers[0].State == state.Stable {
		t.Errorf("the group is %s, its leader's lease of %v s, its worker %+v", r.State, r.LeaderAge, r.Workers[0])
	}
	t.Log(r.Why)
	if err := g.pub.DeleteStream(t.Context(), "foreign"); err != nil {
		t.Fatal(err)
	}
	await.That(t, "two workers settled again", g.settled(ws...))
	if s := ws[0].Status(); !s.RefusedSince.IsZero() || s.Refused != "" {
		t.Errorf("writes are refused since %v: %s", s.RefusedSince, s.Refused)
	}
	await.That(t, "a look finds nothing wrong", func() bool { v := g.look(t); return v.State() == state.Stable && v.Report().Why == "" })
	g.publish(40, 1)
	g.check(0)
}

// streamConfig returns the settings of a stream.
func (g *group) streamConfig(name string) jetstream.StreamConfig {
	g.t.Helper()
	s, err := g.pub.Stream(g.t.Context(), name)
	if err != nil {
		g.t.Fatal(err)
	}
	return s.CachedInfo().Config
}

// limits checks that all streams of the group have limits that fit into the storage together, and returns their sum.
func (g *group) limits(maxStore int64) (sum int64) {
	g.t.Helper()
	for _, name := range append(g.cfg.Streams(), "KV_worker-heartbeats", "KV_stable-ids", "KV_worker-assignments", "worker-events", "jobs-retry") {
		c := g.streamConfig(name)
		if c.MaxBytes <= 0 {
			g.t.Errorf("stream %s has no limit", name)
		}
		sum += c.MaxBytes
	}
	if sum > maxStore {
		g.t.Errorf("the streams may hold %d bytes together, and the server %d", sum, maxStore)
	}
	return sum
}

// TestStorageLimits: what limits the streams of a group get.
func TestStorageLimits(t *testing.T) {
	t.Parallel()
	t.Run("the messages get at most half of what is left", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases)
		await.That(t, "a worker settled", g.settled(g.start("w0")))
		g.limits(64 << 20)
		if c := g.streamConfig("jobs"); c.MaxBytes < 8<<20 || c.MaxBytes > 32<<20 || c.Discard != jetstream.DiscardNew {
			t.Errorf("the messages' limit is %d bytes with discard %v", c.MaxBytes, c.Discard)
		}
	})
	t.Run("several streams share it equally", func(t *testing.T) {
		t.Parallel()
		on := limited(t, 64<<20)
		change := on.change
		on.change = func(c *partition.Config) { change(c); c.Shards = 4 }
		g := startGroup(t, on, 0, quickLeases)
		await.That(t, "a worker settled", g.settled(g.start("w0")))
		g.limits(64 << 20)
		first := g.streamConfig(g.cfg.Streams()[0]).MaxBytes
		for _, name := range g.cfg.Streams() {
			if c := g.streamConfig(name); c.MaxBytes != first || first < 2<<20 || first > 8<<20 {
				t.Errorf("stream %s has a limit of %d bytes, the first one %d", name, c.MaxBytes, first)
			}
		}
	})
	t.Run("a group of an earlier version gets limits with its next worker", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases)
		for _, name := range []string{"jobs", "jobs-retry", "KV_worker-heartbeats", "KV_stable-ids", "KV_worker-assignments"} {
			c := g.streamConfig(name)
			c.MaxBytes = -1
			if _, err := g.pub.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		g.limits(64 << 20)
	})
	t.Run("a limit that an operator has set stays", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases)
		c := g.streamConfig("jobs")
		c.MaxBytes = 3 << 20
		if _, err := g.pub.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		await.That(t, "a worker settled", g.settled(g.start("w0")))
		if got := g.streamConfig("jobs").MaxBytes; got != 3<<20 {
			t.Errorf("the limit is %d bytes, it was set to %d", got, 3<<20)
		}
	})
	t.Run("no limit where none is wanted", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases, func(c *partition.Config) { c.Storage.MaxBytes = -1 })
		await.That(t, "a worker settled", g.settled(g.start("w0")))
		if got := g.streamConfig("jobs").MaxBytes; got != -1 {
			t.Errorf("the limit is %d bytes", got)
		}
	})
	t.Run("a server that is too small is an error", func(t *testing.T) {
		t.Parallel()
		nc := natstest.Connect(t, limited(t, 4<<20).url)
		err := partition.Open(nc, "worker").Provision(t.Context(), partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*.*"})
		if err == nil || !strings.Contains(err.Error(), "raise max_file_store") {
			t.Errorf("provisioning ends with %v", err)
		}
	})
}

// TestReservedStorage is what the server does with MaxBytes, which the limits of a group rest on.
func TestReservedStorage(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	open := func(t *testing.T) jetstream.JetStream {
		t.Helper()
		nc := natstest.Connect(t, limited(t, size).url)
		js := natstest.JetStream(t, nc)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KV_b", Subjects: []string{"b.>"}, MaxBytes: 2 << 20, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew}); err != nil {
			t.Fatal(err)
		}
		return js
	}
	fill := func(t *testing.T, js jetstream.JetStream, stream jetstream.StreamConfig) error {
		t.Helper()
		if _, err := js.CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		for range size/(64<<10) + 1 {
			if _, err := js.Publish(t.Context(), "m", make([]byte, 64<<10)); err != nil {
				return err
			}
		}
		t.Fatal("the server stores more than it may")
		return nil
	}
	t.Run("a stream with a limit leaves room for others", func(t *testing.T) {
		t.Parallel()
		js := open(t)
		err := fill(t, js, jetstream.StreamConfig{Name: "m", Subjects: []string{"m"}, MaxBytes: size - 2<<20, Discard: jetstream.DiscardNew})
		if !partition.IsFull(err) {
			t.Errorf("the publisher gets %v", err)
		}
		if _, err := js.Publish(t.Context(), "b.lease", make([]byte, 1<<10)); err != nil {
			t.Errorf("the bucket is refused as well: %v", err)
		}
	})
	t.Run("a stream without one takes it, though it is reserved", func(t *testing.T) {
		t.Parallel()
		js := open(t)
		err := fill(t, js, jetstream.StreamConfig{Name: "m", Subjects: []string{"m"}})
		if !partition.IsFull(err) {
			t.Errorf("the publisher gets %v", err)
		}
		if _, err := js.Publish(t.Context(), "b.lease", make([]byte, 1<<10)); !partition.IsFull(err) {
			t.Errorf("the bucket gets %v", err)
		}
	})
	t.Run("no stream is created beyond what is reserved", func(t *testing.T) {
		t.Parallel()
		js := open(t)
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "m", Subjects: []string{"m"}, MaxBytes: size - 2<<20 + 1})
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != 10047 {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestFullDisk: the disk itself is full, below the limit that the server was given. The server then stops writing to each stream that has met
// it, until it is started again. Nothing that it acknowledged is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mount := func(args ...string) error {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "mount", append(args, dir)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := mount("-t", "tmpfs", "-o", "size=24m", "tmpfs"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := exec.CommandContext(context.Background(), "umount", dir).Run(); err != nil {
			t.Error(err)
		}
	})
	srv := natstest.Start(t, natstest.In(dir), natstest.MaxStore(1<<30))
	on := servers{url: srv.URL(), change: func(c *partition.Config) { c.Name, c.Stream, c.Subject = "worker", "jobs", "jobs.*.*" }}
	g := startGroup(t, on, 0, quickLeases)
	await.That(t, "a worker settled", g.settled(g.start("w0")))
	held := make(chan struct{})
	g.rec.mu.Lock()
	g.rec.hold = held
	g.rec.mu.Unlock()
	err := g.fill(40, 2)
	t.Logf("%d messages stored; then: %v", g.published(), err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("publishers are refused with %v, want no answer", err)
	}
	if err := mount("-o", "remount,size=128m"); err != nil {
		t.Fatal(err)
	}
	try, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	if _, err := g.pub.Publish(try, "jobs.other.key", []byte("1")); err == nil {
		t.Error("the server writes again before it is restarted: the page on durability says that it doesn't")
	}
	srv.Restart(t, func() error { return nil })
	g.rec.mu.Lock()
	g.rec.hold = nil
	g.rec.mu.Unlock()
	close(held)
	g.publish(40, 1)
	g.check(0)
}
