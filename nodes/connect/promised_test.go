package connect

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestDoctorComparesLabelsAndTaints with the agents' arguments and with the newest worker.
func TestDoctorComparesLabelsAndTaints(t *testing.T) {
	for _, tt := range []struct {
		name  string
		boot  map[string]string // labels of the newest worker
		args  string
		data  string
		fails string // "" none
	}{
		{"as promised", map[string]string{"team": "a"}, "", ec2.UserDataK3s, ""},
		{"a node without the label", nil, "", ec2.UserDataK3s, "joined without the label team=a"},
		{"a label in the arguments", map[string]string{"team": "a"}, "--node-label tier=b", ec2.UserDataK3s, "K3S_AGENT_ARGS has --node-label"},
		{"a taint in the arguments", map[string]string{"team": "a"}, "--node-taint=x=y:NoSchedule", ec2.UserDataK3s, "K3S_AGENT_ARGS has --node-taint"},
		{"arguments of no concern to the user data of others", map[string]string{"team": "a"}, "--node-label tier=b", ec2.UserDataTemplate, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := nodes.DefaultPolicy()
			p.NodeLabels = map[string]string{"team": "a"}
			w := sim.New(sim.Options{Policy: p, Workers: []string{"a"}})
			w.SetBoots(sim.Boot{Labels: tt.boot})
			c := w.Client("doctor", nil)
			if _, err := c.Launch(t.Context(), nodes.LaunchRequest{Token: "t", ActionID: "x", Offering: nodes.Offering{Zone: "a", Subnet: "subnet-a", Type: "m", Market: nodes.OnDemand}}); err != nil {
				t.Fatal(err)
			}
			w.Advance(5 * time.Minute)
			s := Settings{Policy: p, EC2: ec2.Config{UserData: tt.data, Join: ec2.Join{Args: tt.args}}}
			failed := ""
			for _, check := range checkPromised(t.Context(), s, c, c) {
				if !check.OK {
					failed += check.Detail
					if check.Fix == "" {
						t.Errorf("%s has no fix", check.Name)
					}
				}
			}
			if tt.fails == "" && failed != "" || !strings.Contains(failed, tt.fails) {
				t.Errorf("failed: %q", failed)
			}
		})
	}
}
