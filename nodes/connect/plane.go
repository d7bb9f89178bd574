package connect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/prom"
)

// Plane is an opened node plane: what a Reconciler needs, and what a daemon needs besides. Its functions are nil where there is
// nothing of the kind.
type Plane struct {
	Config nodes.Config
	Where  string // the record and the event log are kept, for people

	// Poll brings interruption events until ctx ends.
	Poll func(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error
	// Watch finds pods that become unschedulable until ctx or the watch ends; nil unless SIGNALS=kubernetes.
	Watch func(ctx context.Context, found func(since time.Time)) error
	// WithoutEffect are settings that mean nothing with SIGNALS=kubernetes.
	WithoutEffect []string
	// Price returns what an instance costs an hour, in US dollars, by the table of instance types.
	Price func(instanceType string, market nodes.Market, zone string) (float64, bool)
	// TokenExpires returns when the token of the Kubernetes API expires, zero if it never does.
	TokenExpires func(ctx context.Context) (time.Time, error)

	// Replicas returns how many pods a Deployment is to have.
	Replicas func(ctx context.Context, namespace, deployment string) (int, error)

	closers
}

// Open opens what the settings name. It reads files but makes no request: a caller that waits for a function's first answer should not
// wait for what a tick does not need, and a part that can't be reached now makes a tick a NOOP, not a program end.
func Open(ctx context.Context, s Settings, o Options) (*Plane, error) {
	stores, err := openStores(ctx, s, o)
	if err != nil {
		return nil, err
	}
	p := &Plane{Where: stores.Where, closers: stores.closers}
	p.Config = nodes.Config{Policy: s.Policy, Store: stores.Store, EventLog: stores.EventLog, Clock: o.Clock,
		Template: s.EC2.Template(), Templates: s.EC2.Templates()}
	if err := p.open(ctx, s, o); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Plane) open(ctx context.Context, s Settings, o Options) error {
	cloud, err := ec2.Open(ctx, s.EC2)
	if err != nil {
		return opening("EC2", err)
	}
	cluster, err := openKube(ctx, s, o, cloud)
	if err != nil {
		return err
	}
	if s.byAPI() {
		p.Watch, p.WithoutEffect = cluster.WatchPending, s.WithoutEffect
	} else {
		signals, err := openProm(ctx, s, o, cloud)
		if err != nil {
			return err
		}
		p.Config.Signals = signals
	}
	p.Config.Cloud, p.Config.Statuses, p.Config.Cluster = cloud, cloud, cluster
	if s.EC2.Prices == ec2.PricesAWS {
		p.Config.Pricer = cloud
	}
	p.Config.EvictionRequester = cluster
	p.TokenExpires, p.Replicas = cluster.TokenExpires, cluster.Replicas
	var ds Deciders
	d, err := ds.For(s.Policy)
	if err != nil {
		return opening("INSTANCE_TABLE", err)
	}
	f, err := ds.fit(s.Policy)
	if err != nil {
		return opening("INSTANCE_TABLE", err)
	}
	p.Config.Sizer, p.Config.Fitter, p.Config.Screener = d.Sizer, d.Fitter, f
	p.Config.Appraiser = f
	p.Config.Reporter = Reporter{Cluster: cluster, Decider: d}
	p.Price = price(ds.catalogs[s.Policy.InstanceTable])
	if s.EC2.Queue == "" {
		return nil
	}
	queue, err := ec2.OpenQueue(ctx, s.EC2)
	if err != nil {
		return opening("INTERRUPTION_QUEUE", err)
	}
	p.Poll = func(ctx context.Context, handle func(context.Context, nodes.InterruptionEvent) error) error {
		q := ec2.Queue{API: queue, URL: s.EC2.Queue, Handle: handle, Clock: o.Clock, Log: o.Log}
		return q.Run(ctx)
	}
	return nil
}

func openKube(ctx context.Context, s Settings, o Options, cloud *ec2.Cloud) (*kube.Cluster, error) {
	s.Kube.Fetch, s.Kube.Clock = fetcher(cloud), o.Clock
	s.Kube.Buffers = s.byAPI() && s.Policy.Sizing == nodes.SizingFit // otherwise none is heeded, so none is read
	c, err := kube.Open(ctx, s.Kube)
	if err != nil {
		return nil, opening("the Kubernetes API", err)
	}
	return c, nil
}

func openProm(ctx context.Context, s Settings, o Options, cloud *ec2.Cloud) (*prom.Signals, error) {
	s.Prom.Fetch, s.Prom.Clock = fetcher(cloud), o.Clock
	p, err := prom.Open(ctx, s.Prom, s.Policy)
	if err != nil {
		return nil, opening("Prometheus", err)
	}
	return p, nil
}

// fetcher reads references for adapters that know nothing of AWS.
func fetcher(cloud *ec2.Cloud) func(context.Context, string) (string, error) {
	return func(ctx context.Context, text string) (string, error) {
		if cloud == nil {
			return "", errors.New("EC2 can't be opened, and with it no parameter or secret can be read")
		}
		ref, err := ec2.ParseRef(text)
		if err != nil {
			return "", fmt.Errorf("%w, or file:PATH", err)
		}
		return cloud.Fetch(ctx, ref)
	}
}

// Deciders give what decides by a policy. What a policy refers to is read once. They are for one goroutine; the zero value works.
type Deciders struct {
	catalogs map[string]fit.Catalog // by path
}

// For returns what decides by a policy, the same for a running node plane and for replays of recorded decisions. The
// error says that the table of instance types, which the policy refers to, can't be read or lacks a type.
func (d *Deciders) For(p nodes.Policy) (nodes.Decider, error) {
	f, err := d.fit(p)
	if err != nil {
		return nodes.Decider{}, err
	}
	out := nodes.Decider{Policy: p, Fitter: f, Appraiser: f}
	if p.Sizing == nodes.SizingFit {
		out.Sizer = f
	}
	return out, nil
}

func (d *Deciders) fit(p nodes.Policy) (*fit.Fit, error) {
	catalog, ok := d.catalogs[p.InstanceTable]
	if !ok {
		var err error
		if catalog, err = fit.OpenCatalog(p.InstanceTable); err != nil {
			return nil, err
		}
		if d.catalogs == nil {
			d.catalogs = map[string]fit.Catalog{}
		}
		d.catalogs[p.InstanceTable] = catalog
	}
	if err := offered(catalog, p); err != nil && p.Sizing == nodes.SizingFit {
		return nil, err
	}
	return fit.New(fit.Config{Catalog: catalog, Labels: p.NodeLabels, Taints: p.NodeTaints, MaxPods: p.NodeMaxPods}), nil
}

// offered reports the types of the policy and its pools that a table lacks.
func offered(c fit.Catalog, p nodes.Policy) error {
	if len(p.Pools) == 0 {
		_, err := c.Only(p.InstanceTypes)
		return err
	}
	var errs []error
	for _, name := range p.PoolNames() {
		if _, err := c.Only(p.In(name).InstanceTypes); err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// price tells prices by a table.
func price(c fit.Catalog) func(string, nodes.Market, string) (float64, bool) {
	return func(name string, market nodes.Market, _ string) (float64, bool) {
		t, ok := c[name]
		p := t.Price(market)
		return p, ok && p > 0
	}
}
