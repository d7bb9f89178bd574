package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report returns the table as a page in Markdown.
func (s scene) report(rows []result) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	day := func(d time.Duration) float64 { return d.Hours() / 24 }
	versions := rows[0].Versions

	line("# Beside Karpenter, on one control plane\n")
	line("Written by `go -C bench/karpenter run ./cmd/labbench --trace %s --window %v --speed %v --report FILE`. One run of each, one after the other.\n",
		filepath.Base(s.trace.Name), s.window.Length(), s.speed)
	line("| | %s |", strings.Join(column(rows, func(r result) string { return r.Name }), " | "))
	line("| --- |%s", strings.Repeat(" --- |", len(rows)))
	for _, m := range s.measures() {
		line("| %s | %s |", m.what, strings.Join(column(rows, m.of), " | "))
	}
	line("")
	line("Lower bound of the cost, with perfect foresight: USD %.2f. Costs and waiting are in times of the trace.\n", s.least)

	line("- **Control plane**: Kubernetes %s, etcd %s, KWOK %s; a new one for each. Machine: %s, %s.", versions["Kubernetes"], versions["etcd"], versions["KWOK"], machine(), runtime.Version())
	line("- **Trace**: the %v in which most pods are created (from day %.2f), %d pods; %d more are left out, because they never ran or fit no type. "+
		"Each has a ReplicaSet of its own, runs as long as it did when it was recorded, and starts over when it is evicted.", s.window.Length(), day(s.window.From), len(s.pods), s.out)
	line("- **Beginning**: no node. Pods that are there when the window begins are created first; their waiting does not count.")
	line("- **Types**: %s, On-Demand at the same prices, three zones, the same allocatable resources.", strings.Join(s.names(), ", "))
	line("- **Start**: the trace begins when the autoscaler is ready: when Karpenter's `/readyz` answers that its caches are filled, and when Muster's answers that its first tick is over.")
	line("- **Time** passes %v times as fast. Divided too, to whole seconds: a boot of %v; Karpenter's `consolidateAfter` %v and batches of %v to %v (to milliseconds); "+
		"Muster's tick %v, IDLE_DOWN_SEC, COOLDOWN_DOWN_SEC and timeouts.", s.speed, bootTime, consolidateAfter, batchIdle, batchMax, tick)
	line("- **Not divided**, so that it costs both more of the trace's time than in production: controllers of Kubernetes; its scheduler, which tries a pod that it has refused " +
		"again after up to 10 s, while later pods may take its room; Karpenter's constants, such as 10 s between looks for consolidation and 15 s before one is carried out; Muster's wait of a second before a tick for a pod.")
	line("- **Karpenter**: `WhenEmptyOrUnderutilized`, its default budget of 10 %% of nodes, no limit per hour. "+
		"**Muster**: SIGNALS=kubernetes, SIZING=fit, CONSOLIDATION=replace, and %d consolidations for each hour of the trace. "+
		"These were chosen on weeks of the same trace ([backtest](backtest.md)); Karpenter's were not chosen on it.", perHour)
	line("- **Waiting**: from creation until the pod is bound for the first time. **CPU and memory**: of the autoscaler's process, its start included. " +
		"**API calls** are counted on the way to the API server. Karpenter's include its provider's creation of nodes; Muster talks to a simulated EC2 besides.")
	return b.String()
}

// measure is a line of the table.
type measure struct {
	what string
	of   func(result) string
}

func (s scene) measures() []measure {
	return []measure{
		{"cost, USD", func(r result) string { return fmt.Sprintf("%.2f", r.Cost) }},
		{"of the lower bound", func(r result) string { return fmt.Sprintf("%.2f", r.Cost/s.least) }},
		{"node-hours", func(r result) string { return fmt.Sprintf("%.1f", r.Hours) }},
		{"nodes launched", func(r result) string { return fmt.Sprint(r.Launched) }},
		{"pods evicted", func(r result) string { return fmt.Sprint(r.Evicted) }},
		{"pods lost otherwise", func(r result) string { return fmt.Sprint(r.Lost) }},
		{"waiting p50", func(r result) string { return r.P50.Round(100 * time.Millisecond).String() }},
		{"waiting p99", func(r result) string { return r.P99.Round(time.Second).String() }},
		{"pods placed that came after the beginning", func(r result) string { return fmt.Sprint(r.Placed) }},
		{"pods never placed", func(r result) string { return fmt.Sprint(r.Waiting) }},
		{"pods finished", func(r result) string { return fmt.Sprint(r.Finished) }},
		{"autoscaler's CPU", func(r result) string { return fmt.Sprintf("%.2f s", r.Usage.CPU.Seconds()) }},
		{"its peak memory", func(r result) string { return fmt.Sprintf("%d MB", r.Usage.Peak>>20) }},
		{"API calls", func(r result) string { return fmt.Sprint(r.Sum) }},
		{"by verb", func(r result) string { return r.Calls }},
	}
}

func column(rows []result, of func(result) string) (out []string) {
	for _, r := range rows {
		out = append(out, of(r))
	}
	return out
}

// machine names the processor and the number of cores.
func machine() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), model)
}
