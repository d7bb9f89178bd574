package prom_test

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"testing"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/prom"
)

// FuzzAnswers answers every query with the same bytes: whatever they are, a number that is read is one that can be.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		``, `null`, `<html>`, `{"status":"error","errorType":"execution","error":"no"}`,
		`{"status":"success","data":{"resultType":"vector","result":[]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1730001600,"1730001590"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"node":"w","internal_ip":"10.0.0.2","instance":"10.0.0.2:9100"},"value":[1730001600,"1"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1730001600,"NaN"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1730001600,{"count":"1","sum":"1","buckets":[]}]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1730001600,"1"]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1730001600,"1"]]}]},"warnings":["w"]}`,
	} {
		f.Add(200, s)
	}
	f.Add(422, `{"status":"success"}`)
	f.Add(503, "\x00\xff")
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		c := prom.DefaultConfig()
		c.Clock = fixed(start)
		s := prom.New(v1.NewAPI(always{status, body}), c, nodes.DefaultPolicy())
		r, _ := s.Observe(context.Background())
		for name, r := range all(r) {
			switch {
			case !r.Known && r.Value != 0:
				t.Errorf("%s is missing and has the value %v", name, r.Value)
			case r.Known && (math.IsNaN(r.Value) || math.IsInf(r.Value, 0) || r.Value < 0):
				t.Errorf("%s is %v", name, r.Value)
			case r.Known && name[:3] == "cpu" && r.Value > 1:
				t.Errorf("%s is %v", name, r.Value)
			}
		}
		for _, c := range s.Check(context.Background()) {
			if c.OK == (c.Fix != "") {
				t.Errorf("%+v: what fails has a fix, what does not has none", c)
			}
		}
	})
}

// always answers everything alike; it implements api.Client.
type always struct {
	status int
	body   string
}

func (always) URL(path string, _ map[string]string) *url.URL { return &url.URL{Path: path} }

func (a always) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	return &http.Response{StatusCode: a.status}, []byte(a.body), nil
}

// FuzzSettings reads any text as a query and as a selector: it is refused or understood.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"", "up", "$cpu", "$pending", "$", "$$workers", "up{$workers}", `up{a="$rate"}`, "}", `job="x"`, `a!~"("`, "\x00"} {
		f.Add(s, s)
	}
	f.Fuzz(func(_ *testing.T, query, selector string) {
		_, _ = prom.ConfigFromEnv(func(env string) (string, bool) {
			switch env {
			case "PROMETHEUS_URL":
				return "http://127.0.0.1:9090", true
			case "QUERY_CPU", "QUERY_CPU_MIN", "QUERY_PENDING_MAX", "QUERY_STATE_METRICS":
				return query, true
			case "WORKER_SELECTOR", "STATE_METRICS_SELECTOR", "INSTANCE_LABEL":
				return selector, true
			}
			return "", false
		})
	})
}
