package daemon

import (
	"context"
	"iter"

	"github.com/muster-dev/muster/nodes"
)

// This file looks over the reconciler's shoulder: each part is wrapped by one that passes every call on and notes what came of it.

// watched returns c with its parts wrapped. happened is told of every event.
func watched(c nodes.Config, m *Metrics, happened func(nodes.Event)) nodes.Config {
	if c.Signals != nil {
		c.Signals = signals{c.Signals, m}
	}
	if c.Cloud != nil {
		c.Cloud = cloud{c.Cloud, m}
	}
	if c.Statuses != nil {
		c.Statuses = statuses{c.Statuses, m}
	}
	if c.Cluster != nil {
		c.Cluster = cluster{c.Cluster, m}
	}
	if c.Store != nil {
		c.Store = store{c.Store, m}
	}
	if c.EventLog != nil {
		c.EventLog = eventLog{c.EventLog, m, happened}
	}
	return c
}

// timed makes a call and notes its duration and, unless it is an ordinary answer, its error.
func timed[T any](m *Metrics, call string, f func() (T, error)) (T, error) {
	began := m.clock.Now()
	v, err := f()
	m.counts.called(call, m.clock.Now().Sub(began), err)
	return v, err
}

type signals struct {
	nodes.Signals
	m *Metrics
}

func (s signals) Observe(ctx context.Context) (nodes.Readings, error) {
	r, err := timed(s.m, "signals.Observe", func() (nodes.Readings, error) { return s.Signals.Observe(ctx) })
	if err != nil {
		r = nodes.Readings{}
	}
	s.m.seen.observed(r)
	return r, err
}

type cloud struct {
	nodes.Cloud
	m *Metrics
}

func (c cloud) Workers(ctx context.Context) ([]nodes.Instance, error) {
	list, err := timed(c.m, "cloud.Workers", func() ([]nodes.Instance, error) { return c.Cloud.Workers(ctx) })
	if err == nil {
		c.m.seen.workers(list)
		if c.m.seen.zonesMissing() { // asked for once: launches would name them only with their first result
			_, _ = c.Subnets(ctx)
		}
	}
	return list, err
}

func (c cloud) Lookup(ctx context.Context, ids []string) (map[string]nodes.Instance, error) {
	return timed(c.m, "cloud.Lookup", func() (map[string]nodes.Instance, error) { return c.Cloud.Lookup(ctx, ids) })
}

func (c cloud) Subnets(ctx context.Context) ([]nodes.Subnet, error) {
	list, err := timed(c.m, "cloud.Subnets", func() ([]nodes.Subnet, error) { return c.Cloud.Subnets(ctx) })
	if err == nil {
		c.m.subnets(list)
	}
	return list, err
}

func (c cloud) Launch(ctx context.Context, req nodes.LaunchRequest) (nodes.Instance, error) {
	in, err := timed(c.m, "cloud.Launch", func() (nodes.Instance, error) { return c.Cloud.Launch(ctx, req) })
	c.m.counts.launched(req.Offering, err)
	return in, err
}

func (c cloud) Terminate(ctx context.Context, id string) error {
	_, err := timed(c.m, "cloud.Terminate", func() (struct{}, error) { return struct{}{}, c.Cloud.Terminate(ctx, id) })
	if err == nil {
		c.m.counts.terminations.Inc()
	}
	return err
}

func (c cloud) Diagnose(ctx context.Context, id string) (nodes.Diagnosis, error) {
	return timed(c.m, "cloud.Diagnose", func() (nodes.Diagnosis, error) { return c.Cloud.Diagnose(ctx, id) })
}

type statuses struct {
	nodes.StatusReader
	m *Metrics
}

func (s statuses) Impaired(ctx context.Context, ids []string) (map[string]nodes.Impairment, error) {
	return timed(s.m, "cloud.Impaired", func() (map[string]nodes.Impairment, error) { return s.StatusReader.Impaired(ctx, ids) })
}

type cluster struct {
	nodes.Cluster
	m *Metrics
}

func (c cluster) View(ctx context.Context) (nodes.View, error) {
	v, err := timed(c.m, "cluster.View", func() (nodes.View, error) { return c.Cluster.View(ctx) })
	var readings nodes.Readings // what could not be read is missing
	if err == nil {
		c.m.seen.cluster(v.Nodes)
		readings = nodes.ClusterReadings(v.Pending, c.m.clock.Now())
	}
	if c.m.policy.Signals == nodes.SignalsKubernetes {
		c.m.seen.observed(readings)
	}
	return v, err
}

func (c cluster) Cordon(ctx context.Context, n nodes.NodeRef, claim string) error {
	_, err := timed(c.m, "cluster.Cordon", func() (struct{}, error) { return struct{}{}, c.Cluster.Cordon(ctx, n, claim) })
	return err
}

func (c cluster) Uncordon(ctx context.Context, n nodes.NodeRef, claim string) error {
	_, err := timed(c.m, "cluster.Uncordon", func() (struct{}, error) { return struct{}{}, c.Cluster.Uncordon(ctx, n, claim) })
	return err
}

func (c cluster) Drain(ctx context.Context, req nodes.DrainRequest) (nodes.DrainProgress, error) {
	p, err := timed(c.m, "cluster.Drain", func() (nodes.DrainProgress, error) { return c.Cluster.Drain(ctx, req) })
	c.m.drained(req.Node, p, err)
	return p, err
}

func (c cluster) Remove(ctx context.Context, n nodes.NodeRef) error {
	_, err := timed(c.m, "cluster.Remove", func() (struct{}, error) { return struct{}{}, c.Cluster.Remove(ctx, n) })
	return err
}

type store struct {
	nodes.Store
	m *Metrics
}

func (s store) Load(ctx context.Context) (nodes.Record, error) {
	r, err := timed(s.m, "store.Load", func() (nodes.Record, error) { return s.Store.Load(ctx) })
	if err == nil {
		s.m.seen.stored(r)
	}
	return r, err
}

func (s store) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	before := s.m.seen.known()
	r, err := timed(s.m, "store.Apply", func() (nodes.Record, error) { return s.Store.Apply(ctx, t) })
	if err == nil {
		s.m.written(before, t, r)
	} else if nodes.IsRefused(err) {
		s.m.seen.reachedStore()
	}
	return r, err
}

func (s store) OpenInterruptions(ctx context.Context) ([]nodes.Interruption, error) {
	list, err := timed(s.m, "store.OpenInterruptions", func() ([]nodes.Interruption, error) { return s.Store.OpenInterruptions(ctx) })
	if err == nil {
		s.m.seen.interruptions(list)
	}
	return list, err
}

func (s store) ApplyInterruption(ctx context.Context, id string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	i, err := timed(s.m, "store.ApplyInterruption", func() (nodes.Interruption, error) { return s.Store.ApplyInterruption(ctx, id, t) })
	if err == nil {
		s.m.seen.interruption(i)
	}
	return i, err
}

type eventLog struct {
	nodes.EventLog
	m        *Metrics
	happened func(nodes.Event)
}

func (j eventLog) Append(ctx context.Context, e nodes.Event) error {
	_, err := timed(j.m, "eventLog.Append", func() (struct{}, error) { return struct{}{}, j.EventLog.Append(ctx, e) })
	j.m.counts.events.WithLabelValues(e.Kind).Inc()
	j.happened(e)
	return err
}

func (j eventLog) Read(ctx context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	return j.EventLog.Read(ctx, q)
}
