package nodes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestFaultOfJoined: what is wrong with a node whose kubelet answers.
func TestFaultOfJoined(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ending := func(ago, grace time.Duration) Ending {
		return Ending{Pod: "shop/cart", Until: now.Add(grace - ago), Grace: int64(grace / time.Second)}
	}
	server := func(version string) []Node {
		return []Node{{ControlPlane: true, Kubelet: version}, {Kubelet: "v1.99.0"}}
	}
	for _, tt := range []struct {
		name string
		node Node
		all  []Node
		want FaultName
		saw  string // a part of it
	}{
		{name: "nothing"},
		{"short of memory", Node{Pressure: "MemoryPressure", Kubelet: "v1.40.0"}, server("v1.36.3"), FaultPressure, "MemoryPressure"},
		{"a pod that uses half of its grace", Node{Unschedulable: true, Ending: ending(15*time.Second, 30*time.Second)}, nil, FaultEnding, "shop/cart was told to end 15s ago, and is killed after 30s"},
		{"a pod that has time", Node{Unschedulable: true, Ending: ending(14*time.Second, 30*time.Second)}, nil, "", ""},
		{"a pod of a short grace", Node{Unschedulable: true, Ending: ending(9*time.Second, 2*time.Second)}, nil, "", ""},
		{"a pod beyond its grace", Node{Unschedulable: true, Ending: ending(50*time.Second, 30*time.Second)}, nil, FaultEnding, "its grace is over for 20s"},
		{"a pod on a node that nothing drains", Node{Ending: ending(time.Minute, 30*time.Second)}, nil, "", ""},
		{"a kubelet newer than its server", Node{Kubelet: "v1.37.0+k3s1"}, server("v1.36.9+k3s1"), FaultVersion, "its kubelet is of v1.37.0+k3s1"},
		{"a newer patch", Node{Kubelet: "v1.36.9"}, server("v1.36.3"), "", ""},
		{"three minor versions older", Node{Kubelet: "v1.33.0"}, server("v1.36.3"), "", ""},
		{"four minor versions older", Node{Kubelet: "v1.32.11"}, server("v1.36.3"), FaultVersion, "v1.32.11"},
		{"a server that says no version", Node{Kubelet: "v1.37.0"}, server(""), "", ""},
		{"a node that says none", Node{}, server("v1.36.3"), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, saw := faultOfJoined(tt.node, tt.all, now)
			if got != tt.want || !strings.Contains(saw, tt.saw) {
				t.Errorf("got %q by %q, want %q by %q", got, saw, tt.want, tt.saw)
			}
			if got != "" && got.Fix() == "" {
				t.Errorf("%q has no fix", got)
			}
		})
	}
}

// consoles is a cloud that knows consoles and nothing else.
type consoles struct {
	Cloud
	asked map[string]int // by instance
	err   error
}

func (c *consoles) Diagnose(_ context.Context, id string) (Diagnosis, error) {
	c.asked[id]++
	return Diagnosis{Reason: "Server.SpotInstanceTermination", Console: "muster: the agent token can't be read"}, c.err
}

// TestSurveyorFault: which workers are asked about, when, and how often.
func TestSurveyorFault(t *testing.T) {
	now := time.Now()
	alive := Instance{ID: "i-1", State: StateRunning, ActionID: "up", LaunchedAt: now.Add(-time.Minute)}
	ended := Instance{ID: "i-1", State: StateTerminated, ActionID: "up"}
	young, other := alive, alive
	young.LaunchedAt, other.ActionID = now.Add(-time.Second), ""
	const broken = "KubeletNotReady: no runtime"
	notReady := func(ago time.Duration) *Node { return &Node{NotReadySince: now.Add(-ago), NotReadyWhy: broken} }
	for _, tt := range []struct {
		name   string
		worker Worker
		record Record
		err    error
		want   FaultName
		saw    string
		asked  int
	}{
		{"an instance that does not join", Worker{Instance: alive}, Record{}, nil, FaultTokenUnreadable, "can't be read", 1},
		{"one that boots", Worker{Instance: young}, Record{}, nil, "", "", 0},
		{"one that nothing of ours launched", Worker{Instance: other}, Record{}, nil, "", "", 0},
		{"a console that can't be read", Worker{Instance: alive}, Record{}, errors.New("AccessDenied"), FaultConsole, "AccessDenied", 1},
		{"one that has ended while it was waited for", Worker{Instance: ended}, Record{ScalingInProgress: true, ScaleUpActionID: "up", ScaleUpInstanceIDs: []string{"i-1"}}, nil, FaultGone, "SpotInstanceTermination", 1},
		{"one that we ended", Worker{Instance: ended}, Record{}, nil, "", "", 0},
		{"a silent kubelet", Worker{Instance: alive, Node: &Node{KubeletSilent: true, NotReadySince: now}}, Record{}, nil, FaultKubelet, "", 1},
		{"a node that is not Ready for long", Worker{Instance: alive, Node: notReady(time.Minute)}, Record{}, nil, FaultNotReady, broken, 1},
		{"a node that is not Ready for a moment", Worker{Instance: alive, Node: notReady(time.Second)}, Record{}, nil, "", "", 0},
		{"a node that is Ready, and has used up its disk", Worker{Instance: alive, Node: &Node{Ready: true, Pressure: "DiskPressure"}}, Record{}, nil, FaultPressure, "DiskPressure", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cloud := &consoles{asked: map[string]int{}, err: tt.err}
			c := &Config{Policy: DefaultPolicy(), Cloud: cloud}
			c.setDefaults()
			v := surveyor{newRun(c, "test", nil)}
			s := &survey{workers: []Worker{tt.worker}, record: tt.record}
			faults := append(v.faults(t.Context(), s), v.faults(t.Context(), s)...)

			if tt.want == "" && len(faults) > 0 || tt.want != "" && len(faults) != 2 {
				t.Fatalf("got %v of two looks, want %q in each", faults, tt.want)
			}
			for _, f := range faults {
				if f.InstanceID != "i-1" || f.Name != tt.want || !strings.Contains(f.Saw, tt.saw) {
					t.Errorf("got %+v, want %q by %q", f, tt.want, tt.saw)
				}
			}
			if got := cloud.asked["i-1"]; got != tt.asked {
				t.Errorf("the cloud was asked %d times in a run, want %d", got, tt.asked)
			}
		})
	}
}

// TestSurveyorFaultsOfMany: with many faults at once only some consoles are read.
func TestSurveyorFaultsOfMany(t *testing.T) {
	cloud := &consoles{asked: map[string]int{}}
	c := &Config{Policy: DefaultPolicy(), Cloud: cloud}
	c.setDefaults()
	s := &survey{}
	for i := range 2 * faultsAsked {
		s.workers = append(s.workers, Worker{Instance: Instance{ID: "i-" + strings.Repeat("x", i), State: StateRunning, ActionID: "up"}})
	}
	if got := (surveyor{newRun(c, "test", nil)}).faults(t.Context(), s); len(got) != faultsAsked || len(cloud.asked) != faultsAsked {
		t.Errorf("%d faults, %d consoles read, want %d of both", len(got), len(cloud.asked), faultsAsked)
	}
	s.viewErr = errors.New("unreachable")
	if got := (surveyor{newRun(c, "test", nil)}).faults(t.Context(), s); len(got) != 0 {
		t.Errorf("without a view there are %d faults: nothing is known of nodes then", len(got))
	}
}
