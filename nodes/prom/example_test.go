package prom_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/promapi"
)

// A simulated cluster at 90 % of its CPUs, read through a real Prometheus engine.
func ExampleOpen() {
	simulator := sim.New(sim.Options{Workers: []string{"a", "b"}})
	simulator.SetLoad(0.9)
	prometheus := promapi.New(promapi.Options{})
	defer prometheus.Watch(simulator)()
	simulator.Advance(15 * time.Minute)
	server := httptest.NewServer(prometheus)
	defer server.Close()

	config, err := prom.ConfigFromEnv(func(env string) (string, bool) { return server.URL, env == "PROMETHEUS_URL" })
	if err != nil {
		fmt.Println(err)
		return
	}
	config.Clock = simulator.Clock()
	signals, err := prom.Open(context.Background(), config, nodes.DefaultPolicy())
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := signals.Observe(context.Background())
	fmt.Printf("cpu %.2f, for 3 minutes at least %.2f, %.0f pods pending, error %v\n", r.CPU.Value, r.CPUMin.Value, r.Pending.Value, err)
	// Output: cpu 0.90, for 3 minutes at least 0.90, 0 pods pending, error <nil>
}
