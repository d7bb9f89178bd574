package nodes

import (
	"fmt"
	"testing"
)

// large is a cluster of 1,000 workers with 30 pods each, all idle, in three zones.
func large() (Observation, Record) {
	s := idle()
	s.o.Fleet = nil
	for n := range 1000 {
		w := readyWorker(n, string(rune('a'+n%3)))
		for k := range 30 {
			w.Node.Pods = append(w.Node.Pods, Pod{Name: fmt.Sprintf("p/%d-%d", n, k), Requests: Resources{MilliCPU: int64(10 * (k%4 + 1)), Memory: 64 << 20}})
		}
		w.Node.Allocatable.Pods = 60
		s.o.Fleet = append(s.o.Fleet, w)
	}
	return s.o, s.r
}

func BenchmarkDecideAt1000Nodes30000Pods(b *testing.B) {
	o, r := large()
	p := DefaultPolicy()
	p.MaxWorkers = 2000
	for _, c := range []struct {
		name    string
		prepare func(*Observation)
	}{
		{"pods one by one", func(*Observation) {}},
		{"pods in classes", func(o *Observation) {
			for i := range o.Fleet {
				n := *o.Fleet[i].Node
				n.Pods = Classes(n.Pods)
				o.Fleet[i].Node = &n
			}
		}},
		{"no target fits", func(o *Observation) {
			for i := range o.Fleet {
				n := *o.Fleet[i].Node
				n.Pods = append(Classes(n.Pods), Pod{Name: "p/huge", Requests: Resources{MilliCPU: 3900}})
				o.Fleet[i].Node = &n
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := o
			o.Fleet = append([]Worker(nil), o.Fleet...)
			c.prepare(&o)
			b.ReportAllocs()
			var d Decision
			for b.Loop() {
				d = Decide(p, o, r, at(100000))
			}
			b.ReportMetric(float64(len(d.Targets)), "targets")
		})
	}
}
