package main

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/lambda"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/nodes/workers"
)

// TestNodesSettingsInSSM: every command reads its settings from a parameter of SSM, named by --config or by the variable SETTINGS.
func TestNodesSettingsInSSM(t *testing.T) {
	api := awsapi.New(sim.New(sim.Options{}), awsapi.Options{Parameters: map[string]string{
		"/muster/blue/settings":   "CPU_UP: 0.61\nTICK_SEC: 30\n",
		"/muster/blue/settings:7": "CPU_UP: 0.77\n",
		"/muster/blue/wrong":      "CPU_UPP: 0.61\n",
		"/muster/blue/high":       "CPU_UP: 61\n",
	}})
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	t.Setenv("AWS_ENDPOINT_URL_SSM", server.URL)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	region := []string{"--aws-region", "x-1"}
	nodes := func(args ...string) (int, string, string) {
		return muster(append(append([]string{"nodes"}, args...), region...)...)
	}

	cpuUp := func(args ...string) [2]string {
		t.Helper()
		_, out, errs := nodes(append([]string{"settings", "--output", "json"}, args...)...)
		var list []struct{ Name, Value, Source string }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
		i := slices.IndexFunc(list, func(s struct{ Name, Value, Source string }) bool { return s.Name == "CPU_UP" })
		return [2]string{list[i].Value, list[i].Source}
	}
	if got, want := cpuUp("--config", "ssm:/muster/blue/settings"), ([2]string{"0.61", "ssm:/muster/blue/settings:1"}); got != want {
		t.Errorf("CPU_UP is %v, want %v", got, want)
	}
	t.Setenv("SETTINGS", "ssm:/muster/blue/settings:7")
	if got, want := cpuUp(), ([2]string{"0.77", "ssm:/muster/blue/settings:7"}); got != want {
		t.Errorf("by SETTINGS CPU_UP is %v, want %v", got, want)
	}
	if got, want := cpuUp("--config", "ssm:/muster/blue/settings"), ([2]string{"0.61", "ssm:/muster/blue/settings:1"}); got != want {
		t.Errorf("by both CPU_UP is %v, want %v", got, want)
	}

	for _, c := range []struct {
		config string
		code   int
		want   []string
	}{
		{"ssm:/muster/blue/wrong", command.ExitUsage, []string{"ssm:/muster/blue/wrong:1", "did you mean CPU_UP?"}},
		{"ssm:/muster/blue/high", command.ExitUsage, []string{"CPU_UP", "61"}},
		{"ssm:", command.ExitUsage, []string{"write ssm:NAME"}},
		{"ssm:/muster/blue/none", command.ExitFailed, []string{"ssm:/muster/blue/none", "ParameterNotFound", "ssm:GetParameter"}},
	} {
		for _, name := range []string{"status", "run", "tick"} {
			code, out, errs := nodes(name, "--config", c.config)
			if code != c.code {
				t.Errorf("%s --config %s: exit code %d, want %d: %s%s", name, c.config, code, c.code, out, errs)
			}
			for _, want := range c.want {
				if !strings.Contains(errs, want) {
					t.Errorf("%s --config %s: %s, without %q", name, c.config, errs, want)
				}
			}
		}
	}

	code, out, errs := nodes("doctor", "--config", "ssm:/muster/blue/none")
	if code != command.ExitFailed || !strings.Contains(out, "ssm:/muster/blue/none") || !strings.Contains(errs, "1 of 1 checks failed") {
		t.Errorf("doctor: exit code %d: %s%s", code, out, errs)
	}
}

// TestNodesSettingsOfOtherForms: the names that one form of the node plane accepts for another are those of the other's settings.
func TestNodesSettingsOfOtherForms(t *testing.T) {
	want := connect.Known([]connect.Group{nodescommand.DaemonSettings(), {Settings: workers.Settings()}, {Settings: lambda.Settings()}})
	want = slices.DeleteFunc(want, func(name string) bool { return name == "MUSTER_FUNCTION" }) // differs between two readers of one document
	got := slices.Clone(connect.OtherForms)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("other forms have %v, want %v", got, want)
	}
	file := filepath.Join(t.TempDir(), "muster.yaml")
	write(t, file, "TICK_SEC: 30\nLAMBDA_MARGIN_SEC: 7\n")
	if code, _, errs := muster("nodes", "status", "--dir", t.TempDir(), "--config", file); code == command.ExitUsage {
		t.Errorf("status rejects the daemon's settings file: %s", errs)
	}
}
