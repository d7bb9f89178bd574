package wiretest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/prom"
	"github.com/muster-dev/muster/setting"
)

// wrong has a value that can't be right for every setting of the plane and its adapters.
var wrong = map[string]string{
	"CPU_UP": "70", "CPU_DOWN": "low", "CPU_UP_SEC": "3m", "PENDING_UP_SEC": "0", "IDLE_DOWN_SEC": "-600", "COOLDOWN_UP_SEC": "-1", "COOLDOWN_DOWN_SEC": "x",
	"MIN_WORKERS": "-2", "MAX_WORKERS": "0", "MAX_BATCH_UP": "0", "MAX_BATCH_DOWN": "none", "MAX_ACTIONS": "0", "CONSOLIDATION": "on", "CONSOLIDATE_PER_HOUR": "-1", "CONSOLIDATE_WINDOWS": "at night", "DRIFT": "maybe", "PODS_PER_NODE": "0", "JOIN_TIMEOUT_SEC": "0", "NOT_READY_TIMEOUT_SEC": "5", "DISK_PRESSURE_TIMEOUT_SEC": "long", "IMPAIRED_TIMEOUT_SEC": "59", "EXPIRE_AFTER_SEC": "60",
	"DRAIN_TIMEOUT_SEC": "five", "SCALE_DOWN_STUCK_SEC": "0", "SIGNALS": "both", "SCALE_UP_TRIGGER": "both", "SIZING": "guess", "PENDING_SOURCE": "all", "INSTANCE_TYPES": ",",
	"SPOT": "maybe", "PRICES": "guess", "EMPTY_ZONES": "some", "NODE_MAX_PODS": "0", "NODE_LABELS": "=,", "NODE_TAINTS": "x", "POOLS": "all", "LOGS_TABLE": "alone",

	"CLUSTER_TAG": "novalue", "CONTROL_PLANE_TAG": "novalue", "SUBNET_IDS": "net-1", "SUBNET_TAG": "novalue", "LAUNCH_TEMPLATE_VERSION": "$Latest",
	"AMI_ID": "image", "SECURITY_GROUP_IDS": "default", "USER_DATA": "#!/bin/sh", "INTERRUPTION_QUEUE": "queue",

	"KUBECONFIG": "/root/.kube/config", "KUBE_API_URL": "http://10.0.0.1:6443", "KUBE_CA_REF": "ca.crt", "KUBE_TOKEN_REF": "eyJhbGciOi", "KUBE_TIMEOUT_SEC": "0",
	"DRAIN_BARE_PODS": "delete", "DRAIN_LOCAL_STORAGE": "keep",

	"LOGS_KEEP_DAYS": "0",

	"PROMETHEUS_URL": "prometheus:9090", "PROMETHEUS_TOKEN_REF": "eyJhbGciOi", "PROMETHEUS_BASIC_AUTH_REF": "muster:pa55word", "PROMETHEUS_CA_REF": "ca.crt",
	"PROMETHEUS_TIMEOUT_SEC": "0", "PROMETHEUS_MAX_AGE_SEC": "0", "PROMETHEUS_STEP_SEC": "15s", "PROMETHEUS_RATE_SEC": "0",
	"WORKER_SELECTOR": "{", "STATE_METRICS_SELECTOR": "cluster", "INSTANCE_LABEL": "in-stance", "QUERY_STATE_METRICS": "(", "QUERY_NODES": "(", "QUERY_CONTROL_PLANE": "(", "QUERY_CPU_WORKERS": "(",
	"QUERY_CPU": "avg(", "QUERY_CPU_MIN": "(", "QUERY_CPU_MAX": "(", "QUERY_PENDING_UNSCHEDULABLE": "(", "QUERY_PENDING_PHASE": "(", "QUERY_PENDING_MIN": "(",
	"QUERY_PENDING_MAX": "(",
}

// anything lists the settings of which any text may be right.
var anything = []string{"CLUSTER", "STATE_TABLE", "INSTANCE_TABLE", "LAUNCH_TEMPLATE", "INSTANCE_PROFILE", "K3S_URL", "K3S_TOKEN_REF", "K3S_VERSION", "K3S_AGENT_ARGS"}

func TestEverySettingOfThePlaneWrongAtOnceIsOneMessageThatListsAll(t *testing.T) {
	lookup := func(env string) (string, bool) { v, ok := wrong[env]; return v, ok }
	_, policyErr := nodes.PolicyFromEnv(lookup)
	_, cloudErr := ec2.ConfigFromEnv(lookup)
	_, clusterErr := kube.ConfigFromEnv(lookup)
	_, storeErr := dynamo.ConfigFromEnv(lookup)
	_, signalsErr := prom.ConfigFromEnv(lookup)
	var e *setting.Error
	if err := setting.Join(policyErr, cloudErr, clusterErr, storeErr, signalsErr); !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	complained := map[string]bool{}
	for _, p := range e.Problems {
		complained[p.Setting] = true
		if p.Fix == "" {
			t.Errorf("%s=%q has no fix", p.Setting, p.Value)
		}
	}
	for _, settings := range [][]setting.Info{nodes.Settings(), ec2.Settings(), kube.Settings(), dynamo.Settings(), prom.Settings()} {
		for _, s := range settings {
			_, tried := wrong[s.Env]
			switch {
			case tried && !complained[s.Env]:
				t.Errorf("%s=%q is not complained about", s.Env, wrong[s.Env])
			case !tried && !slices.Contains(anything, s.Env):
				t.Errorf("%s is not tried", s.Env)
			}
		}
	}
	for _, secret := range []string{"pa55word", "eyJhbGciOi"} {
		if strings.Contains(e.Error(), secret) {
			t.Errorf("the message shows %s", secret)
		}
	}
	if testing.Verbose() {
		t.Log(e)
	}
}
