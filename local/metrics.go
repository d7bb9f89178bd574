package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func scrape(address string) ([]*dto.MetricFamily, error) {
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
	return readMetrics(resp.Body)
}

// readMetrics reads metrics as they are served.
func readMetrics(text io.Reader) ([]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
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
