package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/partition/role"
)

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
	return DefenderOptions{
		Options: service.Options{NATS: c.brokers.url, User: c.users.of(role.Worker), Store: c.storePath, Slots: c.o.Slots, Shards: c.o.Shards, Replicas: c.o.Replicas, Pod: name,
			RetryAttempts: c.o.RetryAttempts, LogFile: filepath.Join(c.dir, "log", name+".log"), Verbose: c.o.Verbose},
		Work: c.o.Work, Record: filepath.Join(c.dir, "record", name)}
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
		d.Disconnect()
		return time.Now()
	}
	go func() {
		defer close(m.done)
		m.err = d.Run(runCtx)
	}()
	return m, nil
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

// arguments are those of a defender's process. Only this program has a rig; another
// version's has the hooks that this one's had.
func arguments(o DefenderOptions) []string {
	command := []string{"rig", "defender"}
	if o.program != "" {
		command = []string{"defender", "run"}
	}
	args := append(command, "--nats", o.NATS, "--store", o.Store, "--slots", strconv.Itoa(o.Slots), "--shards", strconv.Itoa(o.Shards), "--replicas", strconv.Itoa(o.Replicas),
		"--work", o.Work.String(), "--retry-attempts", strconv.Itoa(o.RetryAttempts),
		"--pod", o.Pod, "--node", o.Node, "--record", o.Record, "--log-file", o.LogFile, "--http", "127.0.0.1:0", "--child")
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
