package promapi

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/nodes/sim"
)

// modes are the modes of node_cpu_seconds_total and what part of a CPU's busy time each takes; idle takes the rest.
var modes = []struct {
	name string
	part float64
}{{"iowait", 0.01}, {"irq", 0}, {"nice", 0}, {"softirq", 0.02}, {"steal", 0}, {"system", 0.15}, {"user", 0.82}, {"idle", -1}}

// stateMetrics is the address at which kube-state-metrics is scraped, job the name of its job, as usual configurations name them.
const (
	stateMetrics    = "10.42.0.8:8080"
	stateMetricsJob = "kube-state-metrics"
	nodeExporterJob = "node-exporter"
)

// target is what is scraped as a whole and fails as a whole.
type target struct {
	up     *series
	groups map[string]*group // by what they describe, for instance "pod default/web-0"
}

// group is the series of one object; parts are in the order in which they were made.
type group struct {
	parts []*series
	state string // what of the object decides which series there are
	seen  int    // number of the last scrape that found it
}

// scraper scrapes exporters into a history. Its methods are called with the history locked.
type scraper struct {
	history  *history
	instance func(sim.ExportedNode) string // what the instance label says; nil: the address

	now     time.Time          // of the last scrape
	targets map[string]*target // by address
	missAll bool
	missed  map[string]bool // targets that are not scraped
	failing map[string]bool // targets that don't answer
	resets  map[string]bool // machines whose counters begin again
}

func newScraper(h *history, instance func(sim.ExportedNode) string) *scraper {
	return &scraper{
		history: h, instance: instance,
		targets: map[string]*target{}, missed: map[string]bool{}, failing: map[string]bool{}, resets: map[string]bool{},
	}
}

// miss makes the scraper skip a target, or scrape it again; the address "" is all targets.
func (s *scraper) miss(address string, missed bool) {
	if address == "" {
		s.missAll = missed
		return
	}
	s.missed[address] = missed
}

// ingest is one scrape of everything. Faults of targets and exporters are those of the moment.
func (s *scraper) ingest(e sim.Exporters) {
	h := s.history
	s.now = e.At
	if s.missAll {
		return
	}
	h.begin(e.At.UnixMilli())
	machines := map[string]bool{}
	for i, node := range e.Nodes {
		if node.InternalIP == "" {
			continue // nothing tells where to scrape it
		}
		address := node.InternalIP + ":9100"
		machines[address] = true
		if s.missed[address] {
			continue
		}
		instance := address
		if s.instance != nil {
			instance = s.instance(node)
		}
		t := s.scraped(nodeExporterJob, address, instance, i%2 == 1)
		if node.Up && !s.failing[address] {
			h.set(t.up, 1)
			s.scrapeMachine(t, address, instance, node, i%2 == 1)
		} else {
			s.fail(t)
		}
	}
	for _, address := range slices.Collect(maps.Keys(s.targets)) {
		if address != stateMetrics && !machines[address] { // discovery no longer finds it
			t := s.targets[address]
			s.endMissing(t)
			h.end(t.up)
			delete(s.targets, address)
		}
	}
	if !s.missed[stateMetrics] {
		t := s.scraped(stateMetricsJob, stateMetrics, stateMetrics, false)
		if s.failing[stateMetrics] {
			s.fail(t)
		} else {
			h.set(t.up, 1)
			s.scrapeState(t, e)
		}
	}
}

func (s *scraper) scraped(job, address, instance string, odd bool) *target {
	t := s.targets[address]
	if t == nil {
		t = &target{groups: map[string]*group{}, up: s.history.named("up", odd, "instance", instance, "job", job)}
		s.targets[address] = t
	}
	return t
}

// fail is a scrape without an answer: up is 0 and everything else is marked stale.
func (s *scraper) fail(t *target) {
	s.history.set(t.up, 0)
	for _, g := range t.groups {
		for _, p := range g.parts {
			s.history.end(p)
		}
	}
}

// endMissing marks what a scrape did not find as stale and forgets it.
func (s *scraper) endMissing(t *target) {
	for name, g := range t.groups {
		if g.seen != s.history.last() {
			for _, p := range g.parts {
				s.history.end(p)
			}
			delete(t.groups, name)
		}
	}
}

// group returns an object's series as they are in a state, re-created if the state is another.
func (s *scraper) group(t *target, name, state string, build func() []*series) *group {
	g := t.groups[name]
	if g == nil || g.state != state {
		parts := build()
		if g != nil {
			for _, p := range g.parts {
				if !slices.Contains(parts, p) {
					s.history.end(p)
				}
			}
		}
		g = &group{state: state, parts: parts}
		t.groups[name] = g
	}
	g.seen = s.history.last()
	return g
}

// ---- node-exporter

func (s *scraper) scrapeMachine(t *target, address, instance string, node sim.ExportedNode, odd bool) {
	h := s.history
	g := s.group(t, "cpu", "", func() []*series {
		var out []*series
		for cpu := range node.CPUs {
			for _, m := range modes {
				out = append(out, h.named("node_cpu_seconds_total", odd, "cpu", strconv.Itoa(cpu), "instance", instance, "job", nodeExporterJob, "mode", m.name))
			}
		}
		return out
	})
	for i, p := range g.parts {
		slope := 1 - node.Load
		if part := modes[i%len(modes)].part; part >= 0 {
			slope = part * node.Load
		}
		if s.resets[address] { // the machine has started again
			h.append(p, 3, slope)
		} else {
			h.count(p, slope)
		}
	}
	delete(s.resets, address)
}

// ---- kube-state-metrics

var (
	phases     = []string{"Pending", "Succeeded", "Failed", "Unknown", "Running"}
	statuses   = []string{"true", "false", "unknown"}
	conditions = []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}
)

func (s *scraper) scrapeState(t *target, e sim.Exporters) {
	for _, n := range e.Nodes {
		if n.Foreign {
			continue
		}
		s.nodeState(t, n)
		if n.ControlPlane { // what runs on every K3s server
			for _, name := range []string{"coredns-6799fbcd5", "kube-state-metrics-0"} {
				s.podState(t, sim.ExportedPod{Namespace: "kube-system", Name: name + "-" + n.Name, Node: n.Name, HostIP: n.InternalIP})
			}
		}
	}
	for _, p := range e.Pods {
		s.podState(t, p)
	}
	s.endMissing(t)
}

func (s *scraper) state(name string, more ...string) *series {
	return s.history.named(name, false, append([]string{"instance", stateMetrics, "job", stateMetricsJob}, more...)...)
}

func (s *scraper) nodeState(t *target, n sim.ExportedNode) {
	h := s.history
	name := "node " + n.Name
	g := s.group(t, name, n.InternalIP+n.ProviderID, func() []*series {
		out := []*series{
			s.state("kube_node_info", "node", n.Name, "internal_ip", n.InternalIP, "provider_id", n.ProviderID, "kernel_version", "6.1.0-18-cloud-amd64",
				"os_image", "Amazon Linux 2023", "container_runtime_version", "containerd://1.7.11-k3s2", "kubelet_version", "v1.29.3+k3s1",
				"kubeproxy_version", "deprecated", "pod_cidr", "", "system_uuid", ""),
			s.state("kube_node_created", "node", n.Name),
			s.state("kube_node_spec_unschedulable", "node", n.Name),
		}
		for _, c := range conditions {
			for _, st := range statuses {
				out = append(out, s.state("kube_node_status_condition", "node", n.Name, "condition", c, "status", st))
			}
		}
		if n.ControlPlane {
			out = append(out, s.state("kube_node_role", "node", n.Name, "role", "control-plane"), s.state("kube_node_role", "node", n.Name, "role", "master"))
		}
		return out
	})
	h.set(g.parts[0], 1)
	h.set(g.parts[1], float64(n.CreatedAt.Unix()))
	h.set(g.parts[2], oneIf(n.Unschedulable))
	ready := "true"
	switch {
	case !n.Ready && !n.Up:
		ready = "unknown" // the kubelet no longer reports
	case !n.Ready:
		ready = "false"
	}
	i := 3
	for _, c := range conditions {
		is := "false"
		if c == "Ready" {
			is = ready
		}
		for _, st := range statuses {
			h.set(g.parts[i], oneIf(st == is))
			i++
		}
	}
	for ; i < len(g.parts); i++ {
		h.set(g.parts[i], 1)
	}
}

func (s *scraper) podState(t *target, p sim.ExportedPod) {
	h := s.history
	name := "pod " + p.Namespace + "/" + p.Name
	state := p.Node
	if p.Gated {
		state = "gated"
	}
	g := s.group(t, name, state, func() []*series {
		id := []string{"namespace", p.Namespace, "pod", p.Name, "uid", "uid-" + p.Namespace + "-" + p.Name}
		with := func(name string, more ...string) *series { return s.state(name, append(slices.Clone(id), more...)...) }
		out := []*series{with("kube_pod_info", "host_ip", p.HostIP, "pod_ip", "", "node", p.Node, "created_by_kind", "ReplicaSet",
			"created_by_name", p.Name, "priority_class", "", "host_network", "false")}
		for _, phase := range phases {
			out = append(out, with("kube_pod_status_phase", "phase", phase))
		}
		for _, c := range statuses {
			out = append(out, with("kube_pod_status_scheduled", "condition", c))
		}
		if p.Node == "" { // kube-state-metrics looks at the condition and not at its reason: a gated pod has it, too
			out = append(out, with("kube_pod_status_unschedulable"))
		}
		if p.Gated {
			out = append(out, with("kube_pod_status_reason", "reason", "SchedulingGated"))
		}
		return out
	})
	phase, scheduled := "Running", "true"
	if p.Node == "" {
		phase, scheduled = "Pending", "false"
	}
	h.set(g.parts[0], 1)
	for i, ph := range phases {
		h.set(g.parts[1+i], oneIf(ph == phase))
	}
	for i, c := range statuses {
		h.set(g.parts[6+i], oneIf(c == scheduled))
	}
	for _, more := range g.parts[9:] {
		h.set(more, 1)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
