// Package region puts a simulated cloud region with a K3s cluster on this machine, behind the protocols of the real ones: the AWS
// APIs, the Kubernetes API and the Prometheus API, each on a free port of 127.0.0.1, in real time. Whatever talks to it is the real
// client; Config gives a node plane of the real adapters.
package region

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/local"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
	"github.com/muster-dev/muster/nodes/sim/promapi"
)

// Options describe a region. Dir and Sim.Policy are required.
type Options struct {
	Sim    sim.Options   // the simulator; Start is ignored, its time is the machine's
	Dir    string        // of the record and the event log
	Scrape time.Duration // between scrapes of the metrics; 0: 1 s
	Rate   time.Duration // window of the rate of CPU time; 0: four scrapes

	Speed      float64           // seconds of the region for each second, 1 or more; 0: 1. Config's node plane keeps to 1
	History    time.Duration     // how long the region has been there when it starts, and its metrics with it
	Parameters map[string]string // of SSM, by name
	Price      awsapi.Price      // what instances cost; nil: by the table that comes with Muster
	Machines   awsapi.Machines   // behind the instances; nil: there are none
}

// Region is a region that runs. It is made by Start.
type Region struct {
	Simulator  *sim.Simulator
	AWS        *awsapi.API
	Kube       *kubeapi.Server
	Prometheus *promapi.Server
	AWSURL     string
	KubeURL    string
	PromURL    string

	o       Options
	servers []*http.Server
	stop    context.CancelFunc
	running sync.WaitGroup
	closers []func() error
	store   nodes.Store
}

// Start starts a region: its time begins to run now.
func Start(o Options) (*Region, error) {
	if o.Scrape == 0 {
		o.Scrape = time.Second
	}
	if o.Rate == 0 {
		o.Rate = 4 * o.Scrape
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Price == nil {
		o.Price = shippedPrice()
	}
	o.Sim.Start = time.Now().Add(-o.History)
	r := &Region{o: o, Simulator: sim.New(o.Sim)}
	r.AWS = awsapi.New(r.Simulator, awsapi.Options{Parameters: o.Parameters, Machines: o.Machines, Price: o.Price})
	r.Kube = kubeapi.New(r.Simulator.Client("kubernetes", nil))
	r.Prometheus = promapi.New(promapi.Options{Interval: o.Scrape})
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	for _, s := range []struct {
		handler http.Handler
		url     *string
	}{{r.AWS, &r.AWSURL}, {r.Kube, &r.KubeURL}, {r.Prometheus, &r.PromURL}} {
		url, err := r.serve(ctx, s.handler)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		*s.url = url
	}
	unwatch := r.Prometheus.Watch(r.Simulator)
	r.closers = append(r.closers, func() error { unwatch(); return nil })
	r.Simulator.Advance(o.History)
	r.running.Go(func() { sim.RealTime(ctx, r.Simulator, o.Speed) })
	return r, nil
}

// shippedPrice returns the prices of the table that comes with Muster.
func shippedPrice() awsapi.Price {
	table := fit.Shipped()
	return func(name string, m nodes.Market, _ string) (float64, bool) {
		t, sold := table[name]
		return t.Price(m), sold
	}
}

func (r *Region) serve(ctx context.Context, h http.Handler) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("starting the simulated region: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	r.servers = append(r.servers, s)
	r.running.Go(func() { _ = s.Serve(l) })
	return "http://" + l.Addr().String(), nil
}

// Config returns a node plane of the real adapters that manages the region, with its record and event log in the region's
// directory. It is to be called once.
func (r *Region) Config(ctx context.Context) (nodes.Config, error) {
	c := nodes.Config{Policy: r.o.Sim.Policy}
	cloud, template, err := r.cloud()
	if err != nil {
		return c, err
	}
	cluster, err := kube.New(&rest.Config{Host: r.KubeURL}, kube.Options{})
	if err != nil {
		return c, fmt.Errorf("connecting to the simulated cluster: %w", err)
	}
	if c.Policy.Signals != nodes.SignalsKubernetes {
		pc := prom.DefaultConfig()
		pc.URL, pc.Step, pc.Rate, pc.MaxAge = r.PromURL, r.o.Scrape, r.o.Rate, 30*r.o.Scrape
		if c.Signals, err = prom.Open(ctx, pc, c.Policy); err != nil {
			return c, fmt.Errorf("connecting to the simulated Prometheus: %w", err)
		}
	}
	store, err := local.Open(ctx, filepath.Join(r.o.Dir, "nodes"), local.Options{Cluster: c.Policy.Cluster})
	if err != nil {
		return c, fmt.Errorf("opening the record: %w", err)
	}
	r.store = store
	r.closers = append(r.closers, store.Close)
	c.Cloud, c.Statuses, c.Cluster, c.Store, c.EventLog = cloud, cloud, cluster, store, store
	c.Template = template
	return c, nil
}

func (r *Region) cloud() (*ec2.Cloud, nodes.Template, error) {
	return r.CloudWith(func(*ec2.Config) {})
}

// CloudWith returns the real adapter of EC2 for the region, with what change makes of
// Config's configuration, and the template that it launches.
func (r *Region) CloudWith(change func(*ec2.Config)) (*ec2.Cloud, nodes.Template, error) {
	cfg := aws.Config{Region: "local", BaseEndpoint: &r.AWSURL, Credentials: credentials.NewStaticCredentialsProvider("simulated", "simulated", "")}
	p := r.o.Sim.Policy
	c := ec2.Config{Cluster: p.Cluster, LaunchTemplate: "lt-00000001", LaunchTemplateVersion: "1", UserData: ec2.UserDataTemplate, InstanceTypes: p.InstanceTypes, Spot: p.Spot}
	change(&c)
	cloud, err := ec2.New(ec2.API{EC2: awsec2.NewFromConfig(cfg, ec2.Options), Parameters: ssm.NewFromConfig(cfg), Secrets: secretsmanager.NewFromConfig(cfg), Identity: sts.NewFromConfig(cfg),
		Pricing: pricing.NewFromConfig(cfg), Region: cfg.Region}, c)
	if err != nil {
		return nil, nodes.Template{}, fmt.Errorf("connecting to the simulated region: %w", err)
	}
	return cloud, c.Template(), nil
}

// OpenInterruptions returns how many interruptions the node plane still works on, -1 if that can't be read.
func (r *Region) OpenInterruptions(ctx context.Context) int {
	if r.store == nil {
		return 0
	}
	open, err := r.store.OpenInterruptions(ctx)
	if err != nil {
		return -1
	}
	return len(open)
}

// Scaling reports whether the node plane has an action in progress, or nothing can be read.
func (r *Region) Scaling(ctx context.Context) bool {
	record, err := r.store.Load(ctx)
	return err != nil || record.ScalingInProgress
}

// Close ends the region and whatever Config opened.
func (r *Region) Close() error {
	r.stop()
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	r.running.Wait()
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	return errors.Join(errs...)
}
