package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/nodes/daemon"
)

// serve serves the console, and metrics beside it, and returns where.
func serve(ctx context.Context, at string, console, metrics http.Handler) (address string, err error) {
	mux := http.NewServeMux()
	mux.Handle("/", console)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, `{"status":"live"}`) })
	return listen.HTTP(ctx, at, mux)
}

// tellAddress tells where the console is, once it answers.
func tellAddress(ctx context.Context, out io.Writer, address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health/live", nil)
	if err != nil {
		return fmt.Errorf("asking the console at %s whether it answers: %w", address, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the console at %s does not answer within %v: %w: give another address with --http", address, within, err)
	}
	_ = res.Body.Close()
	_, _ = fmt.Fprintf(out, "Console: http://%s    metrics of both planes: http://%s/metrics\n", address, address)
	return nil
}

// metricsHandler serves the metrics of all defenders, each with a label "pod", and
// of the node plane, once there is one, as one page.
func metricsHandler(nodePlane func() *daemon.Metrics, defenders func() []*Process) http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		byName := map[string]*dto.MetricFamily{}
		var names []string
		var all []*dto.MetricFamily
		if m := nodePlane(); m != nil {
			registry := prometheus.NewRegistry()
			registry.MustRegister(m)
			families, err := registry.Gather()
			if err != nil {
				return nil, fmt.Errorf("reading the node plane's metrics: %w", err)
			}
			all = families
		}
		for _, m := range defenders() {
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
