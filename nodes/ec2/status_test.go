package ec2_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// workersOf returns the IDs of the first n workers, after the server's.
func workersOf(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("i-%03d", i+2)
	}
	return ids
}

func TestImpaired(t *testing.T) {
	t.Run("which check failed, and since when", func(t *testing.T) {
		r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b", "a", "b"} })
		r.w.Impair("i-002", "system", 0, time.Hour)
		r.w.Impair("i-003", "instance", 0, time.Hour)
		r.w.Impair("i-004", "system and instance", 0, time.Hour)
		r.w.Advance(time.Second)
		since := r.w.Clock().Now().Add(-time.Second).UTC().Truncate(time.Millisecond)
		r.w.Advance(time.Hour / 2)
		got, err := r.cloud.Impaired(t.Context(), workersOf(4))
		want := map[string]nodes.Impairment{"i-002": {Check: "system", Since: since}, "i-003": {Check: "instance", Since: since}, "i-004": {Check: "system and instance", Since: since}}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		r.w.Advance(time.Hour)
		if got, err := r.cloud.Impaired(t.Context(), workersOf(4)); err != nil || len(got) > 0 {
			t.Errorf("when the checks pass again: %v, %v", got, err)
		}
	})
	t.Run("pages, and a hundred instances at a time", func(t *testing.T) {
		r := open(t, func(s *setup) {
			s.sim.Workers = slices.Repeat([]string{"a"}, 120)
			s.api.PageSize = 40
		})
		ids := workersOf(120)
		for _, id := range ids {
			r.w.Impair(id, "system", 0, time.Hour)
		}
		r.w.Advance(time.Second)
		got, err := r.cloud.Impaired(t.Context(), ids)
		// At least three pages for a hundred and one for the rest; the SDK may have sent one again.
		if n := r.count("DescribeInstanceStatus"); err != nil || len(got) != 120 || n < 3+1 {
			t.Errorf("%d impaired by %d requests, %v", len(got), n, err)
		}
	})
	t.Run("of nothing it asks for nothing", func(t *testing.T) {
		r := open(t)
		if got, err := r.cloud.Impaired(t.Context(), nil); err != nil || len(got) > 0 || r.count("DescribeInstanceStatus") > 0 {
			t.Errorf("%v, %v, %d requests: that would be the whole account", got, err, r.count("DescribeInstanceStatus"))
		}
	})
	t.Run("a reply without what was asked", func(t *testing.T) {
		r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b"} })
		const item = `<item><instanceId>%s</instanceId><systemStatus><status>%s</status></systemStatus></item>`
		body := fmt.Sprintf(item, "i-002", "initializing") + fmt.Sprintf(item, "i-003", "impaired") + fmt.Sprintf(item, "i-999", "impaired")
		r.api.Fault(awsapi.Fault{Action: "DescribeInstanceStatus", Garbage: true, Body: `<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instanceStatusSet>` + body + `</instanceStatusSet></DescribeInstanceStatusResponse>`})
		got, err := r.cloud.Impaired(t.Context(), workersOf(2))
		if want := (map[string]nodes.Impairment{"i-003": {Check: "system"}}); err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
}

// TestImpairedFails: then nothing is known, not what the pages before have said.
func TestImpairedFails(t *testing.T) {
	for name, fault := range map[string]awsapi.Fault{
		"the second page": {Action: "DescribeInstanceStatus", After: 1, Code: "InternalError", Status: 500},
		"throttled":       {Action: "DescribeInstanceStatus"},
		"an unknown ID":   {Action: "DescribeInstanceStatus", Code: "InvalidInstanceID.NotFound"},
		"no reply":        {Action: "DescribeInstanceStatus", Drop: true},
		"no XML":          {Action: "DescribeInstanceStatus", Garbage: true, Body: "<html>login</html>"},
	} {
		r := open(t, func(s *setup) {
			s.sim.Workers = slices.Repeat([]string{"a"}, 6)
			s.api.PageSize = 5
		})
		r.w.Impair("i-002", "system", 0, time.Hour)
		r.w.Advance(time.Second)
		r.api.Fault(fault)
		if got, err := r.cloud.Impaired(t.Context(), workersOf(6)); err == nil || got != nil || !strings.Contains(err.Error(), "describing the status") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
