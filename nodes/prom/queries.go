package prom

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/muster-dev/muster/nodes"
)

// Queries are the PromQL texts, with placeholders.
type Queries struct {
	StateMetrics  string // time of kube-state-metrics' newest scrape, in seconds since 1970; nothing while it has no series
	Nodes         string // by node and internal_ip: 1 if the node is Ready, 0 if not
	ControlPlane  string // by node: the servers of the control plane; nothing if none is a node
	CPUWorkers    string // by the instance label: time of the oldest newest sample of a machine whose utilisation can be computed
	CPU           string // average utilisation of the workers, 0..1
	CPUMin        string // its minimum over $window
	CPUMax        string // its maximum over $window
	Unschedulable string // pods that the scheduler could not place
	Phase         string // pods in phase Pending
	PendingMin    string // minimum over $window of the count that drives
	PendingMax    string // maximum over $window of the count that drives
}

// The queries unless settings say otherwise. A query whose counters or gauges are absent gives nothing, which is not zero; where
// absence does mean zero, the query itself says so, and only as long as $state has a value.
//
// The utilisation of a CPU is one minus idle time by all time, and not one minus the rate of idle time: while a series is younger than
// the window, as every series of a new node is, its rate comes out as if the counter had stood still before, and an idle machine would
// read 0.8 busy. Idle time and all time are as young as each other.
//
// "> -Inf" drops what is not a number: min_over_time and max_over_time would pass over it and count_over_time would count it. Nor does
// a point count at which the newest sample was older than PROMETHEUS_MAX_AGE_SEC: a server that was down marks nothing as stale, and what
// it had before would stand for what it did not see, for five minutes of the gap.
const (
	defaultStateMetrics = `max(timestamp(kube_pod_info{namespace="kube-system",$kube}))`
	defaultNodes        = `max by (node, internal_ip) (kube_node_info{$kube}) * on (node) group_left () max by (node) (kube_node_status_condition{condition="Ready",status="true",$kube})`
	defaultControlPlane = `max by (node) (kube_node_role{role=~"control-plane|master|etcd",$kube})`
	defaultCPUWorkers   = `min by ($instance) (timestamp(node_cpu_seconds_total{mode="idle",$workers}) and rate(node_cpu_seconds_total{mode="idle",$workers}[$rate]))`
	defaultCPU          = `1 - avg(rate(node_cpu_seconds_total{mode="idle",$workers}[$rate]) / ignoring (mode) sum without (mode) (rate(node_cpu_seconds_total{$workers}[$rate])))`
	defaultCPUMin       = `min_over_time(($cpu)[$window:$step]) and on () (count_over_time((($cpu) > -Inf and on () time() - max($machines) <= $age)[$window:$step]) >= $points)`
	defaultCPUMax       = `max_over_time(($cpu)[$window:$step]) and on () (count_over_time((($cpu) > -Inf and on () time() - max($machines) <= $age)[$window:$step]) >= $points)`
	gated               = `unless on (namespace, pod, uid) (kube_pod_status_reason{reason="SchedulingGated",$kube} == 1)`
	defaultUnsched      = `count(max by (namespace, pod, uid) (kube_pod_status_unschedulable{$kube}) == 1 ` + gated + `) or on () 0 * ($state)`
	defaultPhase        = `count(max by (namespace, pod, uid) (kube_pod_status_phase{phase="Pending",$kube}) == 1 ` + gated + `) or on () 0 * ($state)`
	defaultPendingMin   = `min_over_time(($pending)[$window:$step]) and on () (count_over_time((($pending) > -Inf and on () time() - ($state) <= $age)[$window:$step]) >= $points)`
	defaultPendingMax   = `max_over_time(($pending)[$window:$step]) and on () (count_over_time((($pending) > -Inf and on () time() - ($state) <= $age)[$window:$step]) >= $points)`
)

// name identifies a query by the setting that replaces it.
type name string

const (
	queryState      name = "QUERY_STATE_METRICS"
	queryNodes      name = "QUERY_NODES"
	queryControl    name = "QUERY_CONTROL_PLANE"
	queryCPUWorkers name = "QUERY_CPU_WORKERS"
	queryCPU        name = "QUERY_CPU"
	queryCPUMin     name = "QUERY_CPU_MIN"
	queryCPUMax     name = "QUERY_CPU_MAX"
	queryUnsched    name = "QUERY_PENDING_UNSCHEDULABLE"
	queryPhase      name = "QUERY_PENDING_PHASE"
	queryPendingMin name = "QUERY_PENDING_MIN"
	queryPendingMax name = "QUERY_PENDING_MAX"
)

// allQueries is in the order in which they are asked and shown.
var allQueries = []name{queryState, queryNodes, queryControl, queryUnsched, queryPhase, queryPendingMin, queryPendingMax,
	queryCPUWorkers, queryCPU, queryCPUMin, queryCPUMax}

func (q *Queries) text(n name) *string {
	switch n {
	case queryState:
		return &q.StateMetrics
	case queryNodes:
		return &q.Nodes
	case queryControl:
		return &q.ControlPlane
	case queryCPUWorkers:
		return &q.CPUWorkers
	case queryCPU:
		return &q.CPU
	case queryCPUMin:
		return &q.CPUMin
	case queryCPUMax:
		return &q.CPUMax
	case queryUnsched:
		return &q.Unschedulable
	case queryPhase:
		return &q.Phase
	case queryPendingMin:
		return &q.PendingMin
	}
	return &q.PendingMax
}

// placeholder matches what is replaced in a query: a dollar and a word. "$1", as label_replace uses it, is none.
var placeholder = regexp.MustCompile(`\$[a-zA-Z_]+`)

// mayUse lists the placeholders of each query. A query never contains itself, however often it is expanded.
func mayUse(n name) []string {
	out := []string{"$instance", "$workers", "$rate", "$step"}
	switch n {
	case queryState, queryNodes, queryControl: // they are asked before anybody knows which machines are workers
		return []string{"$instance", "$kube", "$rate", "$step"}
	case queryCPUMin, queryCPUMax:
		return append(out, "$window", "$points", "$cpu", "$machines", "$age")
	case queryPendingMin, queryPendingMax:
		return []string{"$instance", "$kube", "$rate", "$step", "$window", "$points", "$pending", "$state", "$age"}
	case queryUnsched, queryPhase:
		return []string{"$instance", "$kube", "$rate", "$step", "$state"}
	}
	return out
}

// driving returns the query of the pending pods that drive decisions.
func driving(p nodes.PendingSource) name {
	if p == nodes.PendingPhase {
		return queryPhase
	}
	return queryUnsched
}

// promDuration writes a duration as PromQL does, in milliseconds where it has to.
func promDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// matchers returns the text of a selector's setting as it stands in a query, where others may follow.
func matchers(s string) string {
	if s = strings.Trim(strings.TrimSpace(s), ","); s != "" {
		s += ","
	}
	return s
}

// parse returns what is wrong with a query that has no placeholders left. Whatever a server might understand is let through; what
// this one understands, doctor finds out by asking.
func parse(query string) string {
	e, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true}).ParseExpr(query)
	if err != nil {
		return "write a PromQL expression: " + err.Error()
	}
	switch t := e.Type(); t {
	case parser.ValueTypeVector:
	case parser.ValueTypeScalar:
		return "it gives a scalar: put vector() around it"
	default:
		return fmt.Sprintf("it gives a %s: write an expression with a value for one moment", parser.DocumentedType(t))
	}
	return ""
}
