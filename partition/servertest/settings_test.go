package servertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// joins begins a worker of a configuration, and returns how Run ended if it
// did so before the worker had a stable ID, nil otherwise.
func (g *group) joins(cfg partition.Config) error {
	g.t.Helper()
	w, err := partition.New(g.connect("joining"), cfg, handler{g.rec, "joining"})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx)
		close(done)
	}()
	defer func() {
		stop()
		for range done { // until Run has ended
		}
	}()
	for end := time.Now().Add(await.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-done:
			return err
		default:
		}
		if w.Status().ID != "" {
			return nil
		}
	}
	g.t.Fatal("it neither joins nor ends")
	return nil
}

// otherSettings are changes of one setting each, by its name in the error.
var otherSettings = map[string]func(*partition.Config){
	"Lease.Heartbeat is 2s in the group and 500ms here":                       func(c *partition.Config) { c.Lease.Heartbeat = 500 * time.Millisecond },
	"Lease.TTL is 6s in the group and 20s here":                               func(c *partition.Config) { c.Lease.TTL, c.Lease.Margin = 20*time.Second, 1500*time.Millisecond },
	"Lease.Margin is 1.5s in the group and 1s here":                           func(c *partition.Config) { c.Lease.Margin = time.Second },
	"Lease.IDTTL is 30s in the group and 1m0s here":                           func(c *partition.Config) { c.Lease.IDTTL = time.Minute },
	"Lease.SuspicionGrace is 500ms in the group and 900ms here":               func(c *partition.Config) { c.Lease.SuspicionGrace = 900 * time.Millisecond },
	"Lease.SuspicionMargin is 150ms in the group and 1s here":                 func(c *partition.Config) { c.Lease.SuspicionMargin = time.Second },
	"Delivery.AckWait is 30s in the group and 10s here":                       func(c *partition.Config) { c.Delivery.AckWait = 10 * time.Second },
	"Delivery.InFlight is 1 in the group and 8 here":                          func(c *partition.Config) { c.Delivery.InFlight = 8 },
	"Storage.MaxAge is 168h0m0s in the group and 1h0m0s here":                 func(c *partition.Config) { c.Storage.MaxAge = time.Hour },
	"Storage.MaxBytes is 0 in the group and 1048576 here":                     func(c *partition.Config) { c.Storage.MaxBytes = 1 << 20 },
	"Storage.Duplicates is 2m0s in the group and 1m0s here":                   func(c *partition.Config) { c.Storage.Duplicates = time.Minute },
	"Retry is on in the group and off here":                                   withoutRetry,
	"Retry.Attempts is 5 in the group and without a bound (KeepFailing) here": func(c *partition.Config) { c.Retry.KeepFailing = true },
	"Storage.Replicas is 1 in the group and 3 here": func(c *partition.Config) {
		c.Storage.Replicas, c.Lease.SuspicionGrace, c.Lease.SuspicionMargin, c.Lease.Heartbeat = 3, 1500*time.Millisecond, 300*time.Millisecond, 500*time.Millisecond
	},
}

// TestOtherSettings: a worker does not join a group whose workers have other settings.
func TestOtherSettings(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond)
	w := g.start("w0")
	await.That(t, "a worker settled", g.settled(w))
	for want, change := range otherSettings {
		t.Run("a worker is refused, "+want, func(t *testing.T) {
			cfg := g.cfg
			change(&cfg)
			err := g.joins(cfg)
			refused := new(partition.SettingsError)
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || refused.Workers != 1 {
				t.Errorf("it ends with %v, want %q", err, want)
			}
		})
	}
	t.Run("every difference is named", func(t *testing.T) {
		cfg := g.cfg
		cfg.Storage.MaxAge, cfg.Lease.TTL = time.Hour, 20*time.Second
		err := g.joins(cfg)
		refused := new(partition.SettingsError)
		if !errors.As(err, &refused) || len(refused.Differences) != 3 { // the margin is a part of the TTL
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("a worker with the group's joins", func(t *testing.T) {
		if err := g.joins(g.cfg); err != nil {
			t.Error(err)
		}
	})
}

// TestProvisionChanges: what changes the settings of a group that is there.
func TestProvisionChanges(t *testing.T) {
	t.Parallel()
	stream := func(t *testing.T, g *group) jetstream.StreamConfig {
		t.Helper()
		s, err := g.pub.Stream(t.Context(), g.cfg.Stream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config
	}
	t.Run("limits change while workers run", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, oneServer(t), time.Millisecond)
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		cfg := g.cfg
		cfg.Storage.MaxAge, cfg.Storage.MaxBytes, cfg.Storage.Duplicates = time.Hour, 1<<20, time.Minute
		if err := partition.Open(g.connect("operator"), cfg.Name).Provision(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if s := stream(t, g); s.MaxAge != time.Hour || s.MaxBytes != 1<<20 || s.Duplicates != time.Minute {
			t.Errorf("the stream keeps messages for %v, up to %d bytes, IDs for %v", s.MaxAge, s.MaxBytes, s.Duplicates)
		}
		if err := g.joins(cfg); err != nil {
			t.Errorf("a worker with the new settings: %v", err)
		}
		if err := g.joins(g.cfg); err == nil || !strings.Contains(err.Error(), "Storage.MaxAge is 1h0m0s in the group and 168h0m0s here") {
			t.Errorf("a worker with those of before: %v", err)
		}
		// What is not set stays.
		if err := partition.Open(g.connect("operator"), g.cfg.Name).Provision(t.Context(), partition.Config{Name: g.cfg.Name, Stream: g.cfg.Stream, Subject: g.cfg.Subject, Slots: g.cfg.Slots}); err != nil {
			t.Fatal(err)
		}
		if s := stream(t, g); s.MaxAge != time.Hour {
			t.Errorf("the stream keeps messages for %v after it was provisioned without a MaxAge", s.MaxAge)
		}
		if have, err := partition.Open(g.connect("operator"), g.cfg.Name).Config(t.Context()); err != nil || have.Storage.MaxAge != time.Hour || have.Lease.TTL != 6*time.Second {
			t.Errorf("it is provisioned with MaxAge %v and LeaseTTL %v, %v", have.Storage.MaxAge, have.Lease.TTL, err)
		}
	})
	t.Run("timings don't change while workers run", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, oneServer(t), time.Millisecond)
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		cfg := g.cfg
		cfg.Lease.IDTTL = time.Minute
		err := partition.Open(g.connect("operator"), cfg.Name).Provision(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "Lease.IDTTL is 30s in the group and 1m0s here") {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("everything changes while nobody works", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, oneServer(t), time.Millisecond)
		g.cfg.Storage.MaxAge, g.cfg.Lease.IDTTL, g.cfg.Retry.Disabled = time.Hour, time.Minute, true
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		if s := stream(t, g); s.MaxAge != time.Hour {
			t.Errorf("the stream keeps messages for %v", s.MaxAge)
		}
		if err := g.joins(g.cfg); err != nil {
			t.Error(err)
		}
	})
	t.Run("a group of an earlier version gets the settings of its next worker", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, oneServer(t), time.Millisecond)
		kv, err := g.pub.KeyValue(t.Context(), "worker-assignments")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "layout", []byte(`{"schema":1,"slots":64,"stream":"jobs","subject":"jobs.*.*"}`)); err != nil {
			t.Fatal(err)
		}
		g.cfg.Lease.IDTTL = time.Minute
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		if have, err := partition.Open(g.connect("operator"), "worker").Config(t.Context()); err != nil || have.Lease.IDTTL != time.Minute {
			t.Errorf("it is provisioned with IDTTL %v, %v", have.Lease.IDTTL, err)
		}
	})
	t.Run("a worker leaves whose group gets other settings", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, oneServer(t), time.Millisecond)
		w := g.start("w0")
		await.That(t, "a worker settled", g.settled(w))
		kv, err := g.pub.KeyValue(t.Context(), "worker-assignments")
		if err != nil {
			t.Fatal(err)
		}
		e, err := kv.Get(t.Context(), "layout")
		if err != nil {
			t.Fatal(err)
		}
		// As another worker does that begins at the same time.
		if _, err := kv.Put(t.Context(), "layout", []byte(strings.Replace(string(e.Value()), `"id_ttl":"30s"`, `"id_ttl":"1m"`, 1))); err != nil {
			t.Fatal(err)
		}
		if err := <-w.done; err == nil || !strings.Contains(err.Error(), "Lease.IDTTL is 1m0s in the group and 30s here") {
			t.Errorf("it ends with %v", err)
		}
		w.done <- nil
	})
}
