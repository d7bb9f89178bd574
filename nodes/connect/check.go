package connect

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
)

// checkTime is how long the checks of one part may take.
const checkTime = 60 * time.Second

// most clocks may differ from ours: a lease is trusted this much shorter than it lasts.
const mostSkew = 5 * time.Second

// Check opens each part that the settings name and lets it check itself. It changes nothing, and a part that can't be opened keeps
// no other from being checked. Parts are checked side by side and listed in a fixed order.
func Check(ctx context.Context, s Settings, o Options) []nodes.Check {
	var results [6][]nodes.Check
	var wg sync.WaitGroup
	clock := o.Clock
	if clock == nil {
		clock = nodes.SystemClock{}
	}
	part := func(i int, what, fix string, f func(context.Context) ([]nodes.Check, error)) {
		wg.Go(func() {
			// By the clock that the parts keep deadlines by.
			ctx, cancel := clock.WithDeadline(ctx, clock.Now().Add(checkTime))
			defer cancel()
			list, err := f(ctx)
			if err != nil {
				list = []nodes.Check{{Name: what, Detail: err.Error(), Fix: fix}}
			}
			results[i] = list
		})
	}
	// References to parameters and secrets are read through EC2's neighbours, by the same credentials.
	cloud, cloudErr := ec2.Open(ctx, s.EC2)
	part(0, "store: open", "see to what it says", func(ctx context.Context) ([]nodes.Check, error) {
		stores, err := openStores(ctx, s, o)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stores.Close() }()
		return stores.check(ctx), nil
	})
	part(1, "ec2: open", "give credentials and region where the AWS SDK finds them, for example by the role of this machine and AWS_REGION", func(ctx context.Context) ([]nodes.Check, error) {
		if cloudErr != nil {
			return nil, cloudErr
		}
		return cloud.Check(ctx), nil
	})
	part(2, "kubernetes: open", "see to KUBECONFIG, or KUBE_API_URL with KUBE_CA_REF and KUBE_TOKEN_REF", func(ctx context.Context) ([]nodes.Check, error) {
		c, err := openKube(ctx, s, o, cloud)
		if err != nil {
			return nil, err
		}
		out := c.Check(ctx)
		if v, err := c.Versions(ctx); err == nil { // otherwise one of those has failed
			out = append(out, checkK3sVersion(s.EC2, v))
		}
		if s.byAPI() {
			out = append(out, c.CheckWatch(ctx)...)
		}
		out = append(out, c.CheckBuffers(ctx)...)
		return out, nil
	})
	part(3, "prometheus: open", "see to PROMETHEUS_URL and PROMETHEUS_CA_REF", func(ctx context.Context) ([]nodes.Check, error) {
		if s.byAPI() {
			return []nodes.Check{checkSignals(s)}, nil
		}
		p, err := openProm(ctx, s, o, cloud)
		if err != nil {
			return nil, err
		}
		return p.Check(ctx), nil
	})
	part(5, "nodes: labels and taints", "see to what it says", func(ctx context.Context) ([]nodes.Check, error) {
		if cloudErr != nil {
			return nil, nil // part 1 tells
		}
		c, err := openKube(ctx, s, o, cloud)
		if err != nil {
			return promisedByKinds(s.EC2), nil //nolint:nilerr // part 2 tells
		}
		return checkPromised(ctx, s, cloud, c), nil
	})
	part(4, "clock", "", func(ctx context.Context) ([]nodes.Check, error) { return checkClocks(ctx, s, time.Now), nil })
	wg.Wait()
	var out []nodes.Check
	for _, r := range results {
		out = append(out, r...)
	}
	return out
}

// checkSignals says what SIGNALS=kubernetes means with the other settings.
func checkSignals(s Settings) nodes.Check {
	out := nodes.Check{Name: "signals: by the Kubernetes API", OK: true, Detail: "Prometheus is not asked"}
	if len(s.WithoutEffect) > 0 {
		out.Detail += "; without effect: " + strings.Join(s.WithoutEffect, ", ")
	}
	if c := s.Policy.Consolidation; c != nodes.ConsolidationRemove && c != nodes.ConsolidationReplace {
		out.OK = false
		out.Detail += "; with CONSOLIDATION=off nothing takes workers away"
		out.Fix = "set CONSOLIDATION to remove or replace, or SIGNALS=prometheus for the idle scale-down"
	}
	return out
}

// checkClocks compares this machine's clock with the Date that servers put on their answers, which is exact to a second. Which
// answer it is does not matter.
func checkClocks(ctx context.Context, s Settings, now func() time.Time) []nodes.Check {
	var urls []struct{ name, url string }
	if !s.byAPI() {
		urls = append(urls, struct{ name, url string }{"Prometheus", s.Prom.URL})
	}
	aws := s.EC2.Endpoints["sts"]
	if aws == "" {
		aws = s.EC2.Endpoints[""]
	}
	if aws == "" && s.AWS.Region != "" {
		aws = "https://sts." + s.AWS.Region + ".amazonaws.com/"
	}
	if aws != "" {
		urls = append(urls, struct{ name, url string }{"AWS", aws})
	}
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var out []nodes.Check
	for _, u := range urls {
		if c, ok := checkClock(ctx, client, u.name, u.url, now); ok {
			out = append(out, c)
		}
	}
	return out
}

// checkClock returns nothing if the server can't be asked or tells no time: that it can't be reached is others' finding.
func checkClock(ctx context.Context, client *http.Client, name, url string, now func() time.Time) (nodes.Check, bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return nodes.Check{}, false
	}
	before := now()
	res, err := client.Do(req)
	if err != nil {
		return nodes.Check{}, false
	}
	_ = res.Body.Close()
	after := now()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return nodes.Check{}, false
	}
	// The answer was dated at some moment between, and the date is cut to seconds.
	var skew time.Duration
	switch {
	case date.Add(time.Second).Before(before):
		skew = before.Sub(date.Add(time.Second))
	case date.After(after):
		skew = date.Sub(after)
	}
	c := nodes.Check{Name: "clock: beside that of " + name, OK: skew <= mostSkew, Detail: "the same"}
	if skew > 0 {
		c.Detail = fmt.Sprintf("%s apart", skew.Truncate(100*time.Millisecond))
	}
	if !c.OK {
		c.Fix = "let both machines follow a time server (chrony, systemd-timesyncd): leases and deadlines are kept by the clock"
	}
	return c, true
}
