// Package promapi is the Prometheus of a simulated cluster: series of the shapes that node-exporter and kube-state-metrics really
// expose, made from a sim.Simulator at every scrape, evaluated by Prometheus' own engine and served by its HTTP API, so that the real
// client talks to it.
//
// A Server scrapes a simulator by the simulator's time, which may be virtual, keeps about an hour of it in memory and answers
// /api/v1/query, /api/v1/query_range, /api/v1/series, /api/v1/status/buildinfo, /-/healthy and /-/ready:
//
//	simulator := sim.New(sim.Options{Workers: []string{"a", "b"}})
//	prometheus := promapi.New(promapi.Options{})
//	prometheus.Watch(simulator)
//	simulator.Advance(10 * time.Minute)
//	server := httptest.NewServer(prometheus)
//
// It fails the ways a Prometheus fails, see Fault and Server.MissScrapes: it hangs, answers garbage or not-a-number, warns, has only
// half the series; targets go down, scrapes are missed, counters start again.
package promapi
