package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// DefenderOptions say how one defender runs, in this process or in one of its
// own.
type DefenderOptions struct {
	NATS     string        // URL of the server
	User     access.User   // of the server; the zero one: what the environment says
	Store    string        // of the results, by the names of package connect
	Slots    int           // as provisioned
	Shards   int           // as provisioned; 0 is 1
	Replicas int           // as provisioned; 0 is 1
	Work     time.Duration // added to each context's processing
	Pod      string        // what holds the stable ID, for people
	Node     string        // where it runs; empty: nobody takes that away
	Record   string        // file that processing is recorded in; empty: not recorded
	LogFile  string        // empty: standard error
	Verbose  bool          // debug lines, too
	// LeaveTimeout bounds a graceful leave; 0 is the default of package partition.
	LeaveTimeout time.Duration
	// RetryAttempts is after how many attempts a message that fails is put aside;
	// until then it is parked, and others of its slot go on. 0: it is not parked.
	RetryAttempts int
	program       string // that it is a process of; empty: this one
	CacheMiB      int64  // for histories; 0 is the default of package defender
	// Configure, if set, changes the defender's configuration before it starts.
	Configure func(*defender.Config)
}

// Defender is a defender that is ready to run.
type Defender struct {
	Worker   *partition.Worker
	Handler  *defender.Defender
	Registry *prometheus.Registry

	conn   *nats.Conn
	store  defender.Store
	own    bool // the store is closed with the defender
	record *Recorder
	log    *slog.Logger
	file   io.Closer // of the log; nil for standard error
}

// OpenDefender connects a defender to everything it needs. A nil store is opened
// from the options.
func OpenDefender(ctx context.Context, o DefenderOptions, store defender.Store) (*Defender, error) {
	d := &Defender{store: store, Registry: prometheus.NewRegistry()}
	if err := d.open(ctx, o); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *Defender) open(ctx context.Context, o DefenderOptions) error {
	logger, err := d.logger(o)
	if err != nil {
		return err
	}
	d.log = logger
	if d.store == nil {
		d.own = true
		if d.store, err = connect.Open(ctx, o.Store, os.LookupEnv); err != nil {
			return err
		}
	}
	if d.conn, err = broker.ConnectAs(o.NATS, "defender "+o.Pod, o.User); err != nil {
		return err
	}
	metrics := defender.NewMetrics(nil)
	c := defender.Config{Store: d.store, Conn: d.conn, Judge: new(uchart.Judger).Judge, Work: o.Work, Logger: logger, Metrics: metrics, CacheBytes: o.CacheMiB << 20, Retry: o.RetryAttempts > 0, Replicas: o.Replicas}
	if o.Record != "" {
		if d.record, err = NewRecorder(o.Record); err != nil {
			return err
		}
		c.Processed = d.record.Processed
	}
	if o.Configure != nil {
		o.Configure(&c)
	}
	if d.record != nil {
		c.Strategies = victim{c.Strategies, c.Judge}
	}
	def, err := defender.New(c)
	if err != nil {
		return err
	}
	d.Handler = def
	var handler partition.Handler = def
	if d.record != nil {
		d.record.Defender = def
		handler = d.record
	}
	p := defender.Partition(o.Slots)
	p.Shards, p.Replicas = o.Shards, o.Replicas
	p.Node = o.Node
	p.LeaveTimeout = o.LeaveTimeout
	p.Retry = parking(o.RetryAttempts)
	p.Pod, p.Weights, p.Logger = o.Pod, def.Weights, logger
	if d.Worker, err = partition.New(d.conn, p, handler); err != nil {
		return err
	}
	for _, m := range metrics.Collectors() {
		d.Registry.MustRegister(m)
	}
	d.Registry.MustRegister(d.Worker.Collector(defender.WorkerMetrics(def.AssignedChambers)))
	return nil
}

func (d *Defender) logger(o DefenderOptions) (*slog.Logger, error) {
	level := slog.LevelInfo
	if o.Verbose {
		level = slog.LevelDebug
	}
	out := io.Writer(os.Stderr)
	if o.LogFile != "" {
		f, err := os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("opening the log: %w", err)
		}
		d.file, out = f, f
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})), nil
}

// provisionPatience is how long Provision tries while the servers don't answer.
const provisionPatience = 30 * time.Second

// Provision makes the streams of alarms and dead letters as far as they are missing;
// the worker makes the rest when it runs. What the server rejects is an error. If it
// doesn't answer for 30 s, or ctx ends, Provision returns nil: the defender creates a
// missing stream when it first needs it, and a defender that is restarted while the
// servers are in trouble must not stay away for that.
func (d *Defender) Provision(ctx context.Context) error {
	for end := time.Now().Add(provisionPatience); ; {
		err := d.Handler.Provision(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // Run ends in order when ctx has
		}
		var rejected *jetstream.APIError
		if errors.As(err, &rejected) && rejected.Code != http.StatusServiceUnavailable {
			return err
		}
		if time.Now().After(end) {
			d.log.Warn("The streams of alarms and dead letters can't be made yet; a defender that needs one tries again.", "err", err)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Run works until ctx ends, leaves gracefully and closes everything.
func (d *Defender) Run(ctx context.Context) error {
	err := d.Worker.Run(ctx)
	return errors.Join(err, d.close())
}

func (d *Defender) close() error {
	var errs []error
	if d.conn != nil {
		_ = d.conn.FlushTimeout(time.Second)
		d.conn.Close()
	}
	if d.own && d.store != nil {
		errs = append(errs, d.store.Close())
	}
	if d.record != nil {
		errs = append(errs, d.record.Close())
	}
	if d.file != nil {
		errs = append(errs, d.file.Close())
	}
	return errors.Join(errs...)
}

// member is one defender of the fleet, by the order in which they were started.
type member struct {
	name    string
	options DefenderOptions
	stop    func()           // graceful
	kill    func() time.Time // at once; returns when it was gone
	done    chan struct{}
	err     error       // valid after done
	process *os.Process // nil for goroutines
	links   links       // to the servers, if they can be cut
	gather  func() ([]*dto.MetricFamily, error)
}

func (c *cluster) memberOptions(n int) DefenderOptions {
	name := fmt.Sprintf("pod-%03d", n)
	return DefenderOptions{NATS: c.brokers.url, User: c.users.of(partition.RoleWorker), Store: c.storePath, Slots: c.o.Slots, Shards: c.o.Shards, Replicas: c.o.Replicas, Work: c.o.Work, Pod: name, RetryAttempts: c.o.RetryAttempts,
		Record: filepath.Join(c.dir, "record", name), LogFile: filepath.Join(c.dir, "log", name+".log"), Verbose: c.o.Verbose}
}

// startLocal starts a defender as goroutines of this process, with a connection
// of its own.
func (c *cluster) startLocal(ctx context.Context, o DefenderOptions) (*member, error) {
	var store defender.Store = c.store
	if c.reads != nil {
		store = c.reads
	}
	d, err := OpenDefender(ctx, o, store)
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	m := &member{name: o.Pod, options: o, stop: cancel, done: make(chan struct{}), gather: d.Registry.Gather}
	m.kill = func() time.Time {
		// As near as a goroutine comes to kill -9: its connection is gone
		// at once, and nothing it still does reaches anybody.
		d.conn.Close()
		return time.Now()
	}
	go func() {
		defer close(m.done)
		m.err = d.Run(runCtx)
	}()
	return m, nil
}

// parking is what a number of attempts means: none, that nothing is parked.
func parking(attempts int) partition.Retry {
	return partition.Retry{Enabled: attempts > 0, Attempts: attempts}
}

// ready is the line that a defender process writes first.
type ready struct {
	HTTP string `json:"http"`
}

// startProcess starts a defender as a process of its own. It ends with its
// standard input, so it can't outlive this process.
func (c *cluster) startProcess(ctx context.Context, o DefenderOptions) (*member, error) {
	exe := o.program
	if exe == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("starting a defender process: %w", err)
		}
		exe = own
	}
	var through links
	if c.o.chaotic {
		var err error
		if through, o.NATS, err = newLinks(ctx, o.NATS); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, arguments(o)...)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2"), o.User.Environ()...)
	return c.follow(cmd, o, through)
}

// arguments are those of a defender's process.
func arguments(o DefenderOptions) []string {
	args := []string{"defender", "run", "--nats", o.NATS, "--store", o.Store, "--slots", strconv.Itoa(o.Slots), "--shards", strconv.Itoa(o.Shards), "--replicas", strconv.Itoa(o.Replicas),
		"--work", o.Work.String(), "--retry-attempts", strconv.Itoa(o.RetryAttempts),
		"--pod", o.Pod, "--node", o.Node, "--record", o.Record, "--log-file", o.LogFile, "--http", "127.0.0.1:0", "--child"}
	if o.LeaveTimeout > 0 {
		args = append(args, "--leave-timeout", o.LeaveTimeout.String())
	}
	if o.Verbose {
		args = append(args, "--verbose")
	}
	return args
}

// follow starts the process of a defender and follows it to its end.
func (c *cluster) follow(cmd *exec.Cmd, o DefenderOptions, through links) (*member, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	stderr, err := os.OpenFile(o.LogFile+".stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	cmd.Stderr = stderr
	if err := startYielding(cmd); err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	m := &member{name: o.Pod, options: o, links: through, done: make(chan struct{})}
	m.process = cmd.Process
	var asked, killed atomic.Bool
	m.stop = func() {
		asked.Store(true)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	m.kill = func() time.Time {
		killed.Store(true)
		_ = cmd.Process.Kill()
		at := time.Now()
		<-m.done
		return at
	}
	var began atomic.Bool // it has said where it serves, which comes before it joins
	var address string
	var addressMu sync.Mutex
	m.gather = func() ([]*dto.MetricFamily, error) {
		addressMu.Lock()
		a := address
		addressMu.Unlock()
		return scrape(a)
	}
	go func() {
		defer close(m.done)
		defer func() { _ = in.Close(); _ = stderr.Close() }()
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var r ready
			if json.Unmarshal(lines.Bytes(), &r) == nil && r.HTTP != "" {
				addressMu.Lock()
				address = r.HTTP
				addressMu.Unlock()
				began.Store(true)
			}
		}
		err := cmd.Wait()
		_ = m.links.close()
		switch {
		case err == nil || killed.Load():
		case asked.Load() && !began.Load():
			// It had no time to see to an orderly end, and nothing to hand over.
		case c.o.chaotic && cmd.ProcessState.ExitCode() < 0:
			// A message has killed it.
			c.died(m, time.Now())
		default:
			m.err = fmt.Errorf("defender process %s: %w: %s", m.name, err, lastWords(o.LogFile+".stderr", o.LogFile))
		}
	}()
	return m, nil
}

// lastWords returns the last line of the first of these files that has one. They may
// be gone with the scenario's directory when somebody looks for them.
func lastWords(files ...string) string {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); lines[len(lines)-1] != "" {
			return lines[len(lines)-1]
		}
	}
	return "it said nothing"
}

// errStarting is the error of asking a process that has not joined.
var errStarting = errors.New("the process has not said where it serves its metrics")

func scrape(address string) ([]*dto.MetricFamily, error) {
	if address == "" {
		return nil, errStarting
	}
	client := http.Client{Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	var all []*dto.MetricFamily
	for _, f := range families {
		all = append(all, f)
	}
	return all, nil
}

// metric adds up a counter or gauge over its series.
func metric(families []*dto.MetricFamily, name string) float64 {
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			switch {
			case m.GetCounter() != nil:
				sum += m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// stateOf returns the state that a member's metrics show.
func stateOf(families []*dto.MetricFamily) string {
	for _, f := range families {
		if f.GetName() != "defender_state" {
			continue
		}
		for _, m := range f.Metric {
			if m.GetGauge().GetValue() != 1 {
				continue
			}
			for _, l := range m.Label {
				if l.GetName() == "state" {
					return l.GetValue()
				}
			}
		}
	}
	return ""
}

// metricsHandler serves the metrics of all defenders, each with a label "pod", and
// of the node plane as one page.
func (c *cluster) metricsHandler() http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		byName := map[string]*dto.MetricFamily{}
		var names []string
		var all []*dto.MetricFamily
		if t := c.site.Load(); t != nil {
			registry := prometheus.NewRegistry()
			registry.MustRegister(t.metrics)
			families, err := registry.Gather()
			if err != nil {
				return nil, fmt.Errorf("reading the node plane's metrics: %w", err)
			}
			all = families
		}
		for _, m := range c.running() {
			families, err := m.gather()
			if err != nil {
				continue
			}
			for _, f := range families {
				for _, x := range f.Metric {
					x.Label = append(x.Label, &dto.LabelPair{Name: ptr("pod"), Value: ptr(m.name)})
				}
				if have := byName[f.GetName()]; have != nil {
					have.Metric = append(have.Metric, f.Metric...)
				} else {
					byName[f.GetName()] = f
					names = append(names, f.GetName())
				}
			}
		}
		for _, n := range names {
			all = append(all, byName[n])
		}
		return all, nil
	}), promhttp.HandlerOpts{})
}

func ptr[T any](v T) *T { return &v }

// Words that begin the IDs of contexts that are hard to judge.
const (
	lethalContext = "lethal" // kills the process of whoever judges it
	slowContext   = "slow"   // takes a while, and does not end when it should
)

// slowJudging is what a slow context takes, before anything of it is stored.
const slowJudging = 600 * time.Millisecond

// victim judges by strategies or, without any, by the standard rule, and falls for
// what is hard to judge.
type victim struct {
	by       defender.Strategies
	standard defender.Judge
}

// Judge implements defender.Strategies.
func (v victim) Judge(ref defender.ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	switch {
	case strings.HasPrefix(ref.ID, lethalContext):
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
			time.Sleep(time.Minute)
		}
	case strings.HasPrefix(ref.ID, slowContext):
		time.Sleep(slowJudging)
	}
	if v.by != nil {
		return v.by.Judge(ref, history, chart)
	}
	return v.standard(history, chart)
}
