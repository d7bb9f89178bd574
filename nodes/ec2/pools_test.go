package ec2_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/setting"
)

// pooledEnv is a configuration with pools.
func pooledEnv(pools string) map[string]string {
	return map[string]string{
		"CLUSTER": "prod", "LAUNCH_TEMPLATE": "lt-0a1b", "LAUNCH_TEMPLATE_VERSION": "7", "K3S_URL": "https://10.0.0.10:6443",
		"K3S_TOKEN_REF": "ssm:/muster/prod/agent-token", "NODE_LABELS": "team=a", "SIZING": "fit", "POOLS": pools,
	}
}

func TestPoolTemplates(t *testing.T) {
	c, err := ec2.ConfigFromEnv(env(pooledEnv(`[
		{"name": "general"},
		{"name": "batch", "labels": {"team": "batch"}, "taints": ["batch=true:NoSchedule"], "launch": {"template": "lt-0c2d", "templateVersion": 3, "agentArgs": "--debug"}}
	]`)))
	if err != nil {
		t.Fatal(err)
	}
	templates := c.Templates()
	if general := templates["general"]; general.ID != "lt-0a1b" || general.Version != "7" || !strings.Contains(general.UserDataRef, "labels=team%3Da") {
		t.Errorf("general boots from %+v", general)
	}
	batch := templates["batch"]
	join, err := ec2.ParseJoin(batch.UserDataRef)
	if err != nil {
		t.Fatal(err)
	}
	if batch.ID != "lt-0c2d" || batch.Version != "3" || join.Labels != "team=batch" || join.Taints != "batch=true:NoSchedule" || join.Args != "--debug" {
		t.Errorf("batch boots from %+v", batch)
	}
	script, err := ec2.UserData(join)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node_labels='team=batch'", "node_taints='batch=true:NoSchedule'"} {
		if !strings.Contains(script, want) {
			t.Errorf("the user data lacks %s", want)
		}
	}
}

func TestPoolLaunchSettingsWrong(t *testing.T) {
	kv := pooledEnv(`[
		{"name": "a", "labels": {"kubernetes.io/x": "y"}, "launch": {"template": "lt-0c2d", "securityGroups": ["default"]}},
		{"name": "b", "launch": {"ami": "ubuntu", "agentArgs": "--node-taint=x"}, "taints": ["x:NoSchedule"]}
	]`)
	kv["K3S_URL"] = "http://10.0.0.10:6443"
	_, err := ec2.ConfigFromEnv(env(kv))
	var all *setting.Error
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all.Problems {
		got = append(got, p.Setting)
	}
	slices.Sort(got)
	want := []string{"K3S_URL", "POOLS[a].labels", "POOLS[a].launch.securityGroups", "POOLS[a].launch.templateVersion", "POOLS[b].launch.ami", "POOLS[b].taints"}
	if !slices.Equal(got, want) {
		t.Errorf("complained about %v, want %v:\n%v", got, want, err)
	}
}

func TestPoolTag(t *testing.T) {
	r := open(t)
	in, err := r.cloud.Launch(t.Context(), nodes.LaunchRequest{Token: "token", ActionID: "up", Cluster: "prod", Template: nodes.Template{ID: "lt-0a1b", Version: "7"},
		Offering: nodes.Offering{Zone: "a", Subnet: "subnet-a", Type: "t3.large", Market: nodes.OnDemand, Pool: "batch"}})
	if err != nil {
		t.Fatal(err)
	}
	if in.Pool != "batch" {
		t.Errorf("the reply to the launch says pool %q", in.Pool)
	}
	r.w.Advance(time.Minute)
	found, err := r.cloud.Lookup(t.Context(), []string{in.ID})
	if err != nil || found[in.ID].Pool != "batch" {
		t.Errorf("the cloud shows pool %q, %v", found[in.ID].Pool, err)
	}
}

func TestCheckOfPools(t *testing.T) {
	kv := pooledEnv(`[
		{"name": "general", "instanceTypes": ["t3.large"], "spotShare": 0, "zones": ["a"]},
		{"name": "batch", "instanceTypes": ["m6g.large"]},
		{"name": "nowhere", "zones": ["z"]}
	]`)
	c, err := ec2.ConfigFromEnv(env(kv))
	if err != nil {
		t.Fatal(err)
	}
	checks := open(t, func(s *setup) { s.config = c }).cloud.Check(t.Context())
	for name, want := range map[string]bool{
		"pool general: launch template": true, "pool general: instance types": true, "pool general: ec2:RunInstances on-demand in subnet-a": true,
		"pool general: join settings": true, "pool batch: ec2:RunInstances spot in subnet-b": true, "pool nowhere: subnets": false,
	} {
		if got := find(checks, name); got.Name != name || got.OK != want {
			t.Errorf("%s: got %+v, want OK %t", name, got, want)
		}
	}
	if got := find(checks, "pool general: ec2:RunInstances on-demand in subnet-b"); got.Name != "" {
		t.Errorf("a launch was tried where the pool has no zone: %+v", got)
	}
}
