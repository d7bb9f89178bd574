package prom

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Check asks everything that a tick asks and tells of each query what it returned, and what to do if that is of no use; then what
// the node plane would read from the answers.
func (s *Signals) Check(ctx context.Context) []nodes.Check {
	o := s.observe(ctx)
	server := nodes.Check{Name: "prometheus: server", OK: o.unreachable == nil, Detail: s.config.URL}
	if o.unreachable != nil {
		server.Detail = o.unreachable.Error()
		server.Fix = o.answers[queryState].err.fix
		return []nodes.Check{server}
	}
	out := []nodes.Check{server}
	for _, n := range allQueries {
		out = append(out, s.checkOf(o, n))
	}
	state := s.stateMetrics(o)
	out = append(out, verdictOf("prometheus: kube-state-metrics is up and fresh", state))
	workers, control, err := s.readNodes(o, state)
	if err == nil && len(workers) > 0 {
		err = s.complete(o, workers, control)
	}
	complete := verdictOf("prometheus: CPU series of every Ready worker and of nothing else", err)
	if complete.OK {
		complete.Detail = fmt.Sprintf("%d Ready workers, %d machines of the control plane left out", len(workers), len(control))
	}
	out = append(out, complete)
	r := o.readings
	for _, x := range []struct {
		name    string
		reading nodes.Reading
	}{{"cpu", r.CPU}, {"cpu, minimum over CPU_UP_SEC", r.CPUMin}, {"cpu, maximum over IDLE_DOWN_SEC", r.CPUMax}, {"pending", r.Pending},
		{"pending, minimum over PENDING_UP_SEC", r.PendingMin}, {"pending, maximum over IDLE_DOWN_SEC", r.PendingMax}} {
		c := nodes.Check{Name: "prometheus: reading " + x.name, OK: x.reading.Known, Detail: x.reading.Why}
		if c.OK {
			c.Detail = fmt.Sprintf("%.4g", x.reading.Value)
		} else {
			c.Fix = "see to the failed checks above; without it nothing is scaled"
		}
		out = append(out, c)
	}
	return out
}

func verdictOf(name string, err *queryError) nodes.Check {
	if err != nil {
		return nodes.Check{Name: name, Detail: err.why, Fix: err.fix}
	}
	return nodes.Check{Name: name, OK: true}
}

// checkOf tells of one query what it returned.
func (s *Signals) checkOf(o *observation, n name) nodes.Check {
	a := o.answers[n]
	c := nodes.Check{Name: "prometheus: " + string(n), OK: true}
	switch {
	case a.err != nil:
		return verdictOf(c.Name, a.err)
	case len(a.samples) == 0 && n == queryControl:
		c.Detail = "no server of the control plane is a node"
	case len(a.samples) == 0:
		c.OK, c.Detail, c.Fix = false, "no value", "ask Prometheus for it: "+a.text
		if w := o.scope.windows[n]; w > 0 {
			c.Detail = s.tooFew(o, n)
			c.Fix = fmt.Sprintf("wait until Prometheus has watched for %s, or see why it missed scrapes; the query: %s", w, a.text)
		}
	case len(a.samples) > 1:
		c.Detail = fmt.Sprintf("%d series", len(a.samples))
	case n == queryState || n == queryCPUWorkers:
		c.Detail = fmt.Sprintf("newest sample %s ago", o.age(float64(a.samples[0].Value)).Round(time.Second))
	default:
		c.Detail = fmt.Sprintf("%.4g", float64(a.samples[0].Value))
	}
	return c
}
