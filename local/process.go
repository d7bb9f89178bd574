package local

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

// Process is one defender of the fleet, by the order in which they were started.
type Process struct {
	Name    string
	Options DefenderOptions
	Stop    func()           // graceful
	kill    func() time.Time // at once; returns when it was gone
	Done    chan struct{}
	Err     error       // valid after done
	OS      *os.Process // nil for goroutines
	Links   Links       // to the servers, if they can be cut
	Gather  func() ([]*dto.MetricFamily, error)
}

func (c *Stack) DefenderOptions(n int) DefenderOptions {
	name := fmt.Sprintf("pod-%03d", n)
	return DefenderOptions{
		Options: service.Options{NATS: c.Brokers.URL, User: c.users.of(role.Worker), Store: c.StorePath, Slots: c.o.Slots, Shards: c.o.Shards, Replicas: c.o.Replicas, Pod: name,
			RetryAttempts: c.o.RetryAttempts, LogFile: filepath.Join(c.Dir, "log", name+".log"), Verbose: c.o.Verbose},
		Work: c.o.Work, Record: filepath.Join(c.Dir, "record", name)}
}

// startLocal starts a defender as goroutines of this process, with a connection
// of its own.
func (c *Stack) startLocal(ctx context.Context, o DefenderOptions) (*Process, error) {
	var store defender.Store = c.Store
	if c.Reads != nil {
		store = c.Reads
	}
	d, err := OpenDefender(ctx, o, store)
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	m := &Process{Name: o.Pod, Options: o, Stop: cancel, Done: make(chan struct{}), Gather: d.Registry.Gather}
	m.kill = func() time.Time {
		// As near as a goroutine comes to kill -9: its connection is gone
		// at once, and nothing it still does reaches anybody.
		d.Disconnect()
		return time.Now()
	}
	go func() {
		defer close(m.Done)
		m.Err = d.Run(runCtx)
	}()
	return m, nil
}

// ready is the line that a defender process writes first.
type ready struct {
	HTTP string `json:"http"`
}

// startProcess starts a defender as a process of its own. It ends with its
// standard input, so it can't outlive this process.
func (c *Stack) startProcess(ctx context.Context, o DefenderOptions) (*Process, error) {
	exe := o.Program
	if exe == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("starting a defender process: %w", err)
		}
		exe = own
	}
	var through Links
	if c.o.Chaotic {
		var err error
		if through, o.NATS, err = NewLinks(ctx, o.NATS); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, Arguments(o)...)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2"), o.User.Environ()...)
	return c.follow(cmd, o, through)
}

// Arguments are those of a defender's process. Only this program has a rig; another
// version's has the hooks that this one's had.
func Arguments(o DefenderOptions) []string {
	command := []string{"rig", "defender"}
	if o.Program != "" {
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
func (c *Stack) follow(cmd *exec.Cmd, o DefenderOptions, through Links) (*Process, error) {
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
	if err := StartLowPriority(cmd); err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	m := &Process{Name: o.Pod, Options: o, Links: through, Done: make(chan struct{})}
	m.OS = cmd.Process
	var asked, killed atomic.Bool
	m.Stop = func() {
		asked.Store(true)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	m.kill = func() time.Time {
		killed.Store(true)
		_ = cmd.Process.Kill()
		at := time.Now()
		<-m.Done
		return at
	}
	var began atomic.Bool // it has said where it serves, which comes before it joins
	var address string
	var addressMu sync.Mutex
	m.Gather = func() ([]*dto.MetricFamily, error) {
		addressMu.Lock()
		a := address
		addressMu.Unlock()
		return scrape(a)
	}
	go func() {
		defer close(m.Done)
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
		_ = m.Links.Close()
		switch {
		case err == nil || killed.Load():
		case asked.Load() && !began.Load():
			// It had no time to see to an orderly end, and nothing to hand over.
		case c.o.Chaotic && cmd.ProcessState.ExitCode() < 0:
			// A message has killed it.
			c.Died(m, time.Now())
		default:
			m.Err = fmt.Errorf("defender process %s: %w: %s", m.Name, err, lastWords(o.LogFile+".stderr", o.LogFile))
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

// Metric adds up a counter or gauge over its series.
func Metric(families []*dto.MetricFamily, name string) float64 {
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

// StateOf returns the state that a process's metrics show.
func StateOf(families []*dto.MetricFamily) string {
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
func (c *Stack) metricsHandler() http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		byName := map[string]*dto.MetricFamily{}
		var names []string
		var all []*dto.MetricFamily
		if t := c.Cluster.Load(); t != nil {
			registry := prometheus.NewRegistry()
			registry.MustRegister(t.metrics)
			families, err := registry.Gather()
			if err != nil {
				return nil, fmt.Errorf("reading the node plane's metrics: %w", err)
			}
			all = families
		}
		for _, m := range c.Running() {
			families, err := m.Gather()
			if err != nil {
				continue
			}
			for _, f := range families {
				for _, x := range f.Metric {
					x.Label = append(x.Label, &dto.LabelPair{Name: ptr("pod"), Value: ptr(m.Name)})
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
