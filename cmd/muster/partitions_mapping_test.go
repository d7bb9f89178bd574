package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

func TestPartitionsMappingReportsWhetherItIsInForce(t *testing.T) {
	t.Parallel()
	from, to := partition.Config{Name: "jobs", Subject: "jobs.*.*", Shards: 4}.Mapping()
	for _, tt := range []struct {
		name     string
		shards   int
		mappings map[string]string
		code     int
		want     []string
	}{
		{"one stream", 1, nil, command.ExitOK, []string{"the one stream jobs", "needs no mapping"}},
		{"in force", 4, map[string]string{from: to}, command.ExitOK, []string{"mappings {", `"jobs.*.*": "jobs.shards.4.{{partition(4,1,2)}}.jobs.{{wildcard(1)}}.{{wildcard(2)}}"`, "It is in force"}},
		{"missing", 4, nil, command.ExitFailed, []string{"mappings {", "It is not in force", "add the lines above"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Start(t)
			for subject, to := range tt.mappings {
				srv.Map(t, subject, to)
			}
			url := startWorkersOn(t, srv, 1, tt.shards)
			code, out, errs := muster("partitions", "mapping", "--nats", url, "--group", "jobs")
			for _, want := range tt.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("it does not say %q:\n%s%s", want, out, errs)
				}
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			_, out, _ = muster("partitions", "mapping", "--nats", url, "--group", "jobs", "--output", "json")
			var v struct {
				Shards  int
				InForce bool `json:"in_force"`
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || v.Shards != tt.shards || v.InForce != (tt.code == command.ExitOK) {
				t.Errorf("%+v, %v in %s", v, err, out)
			}
			if _, out, _ := muster("partitions", "status", "--nats", url, "--group", "jobs"); strings.Contains(out, "in 4 streams") != (tt.shards == 4) {
				t.Errorf("the status says:\n%s", out)
			}
		})
	}
}
