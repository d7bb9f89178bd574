package connect

import (
	"context"
	"maps"
	"slices"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// SettingsVar is the environment variable with settings that have no variable of their own: one YAML or JSON mapping, as in a settings
// file, or ssm:NAME, the parameter of SSM that holds it. A function's environment is limited to 4 KB, and a stack's parameters to 200.
const SettingsVar = "SETTINGS"

// notForFunctions are settings that a function can't use, and why.
var notForFunctions = map[string]string{
	"DIR":                "a function keeps nothing on its disk: STATE_TABLE and LOGS_TABLE are set by the stack",
	"INTERRUPTION_QUEUE": "the stack's rules call the function; the queue is for the daemon",
	"KUBECONFIG":         "a function has no files of its own: KUBE_API_URL, KUBE_CA_REF and KUBE_TOKEN_REF are set by the stack",
	"CLUSTER_TAG":        "the stack's policies permit launches and terminations by the tag muster.dev/cluster=CLUSTER only",
	"MUSTER_FUNCTION":    "it differs between the functions",
	"SUBNET_TAG":         "the stack's policy permits launches into SUBNET_IDS only",
}

// daemons are settings of a kept document that mean nothing to a function, which has neither disk nor queue.
var daemons = []string{"DIR", "INTERRUPTION_QUEUE", "KUBECONFIG"}

// FunctionLookup finds the settings of a function: in the environment, and for all others in the document of its variable SETTINGS. own are
// the names of settings besides those of Groups. The error lists the names in the document that there are none of, that a function can't
// use, and that the environment sets to another value: the daemon and people may read the same document, so it may repeat a value. It is
// an *UnreadError if the document could not be read.
func FunctionLookup(ctx context.Context, env setting.Lookup, own ...string) (setting.Lookup, error) {
	d, err := DocumentFromEnv(ctx, env, slices.Concat(Known(Groups()), own))
	if err != nil || len(d.Values) == 0 {
		return env, err
	}
	if d.Kept() { // the daemon may read it as well
		for _, name := range slices.Concat(daemons, OtherForms) {
			if !slices.Contains(own, name) {
				delete(d.Values, name)
			}
		}
	}
	var problems []setting.Problem
	for _, name := range slices.Sorted(maps.Keys(d.Values)) {
		if why := notForFunctions[name]; why != "" {
			problems = append(problems, setting.Problem{Setting: name, Fix: "leave it out of " + d.Name + ": " + why})
		} else if v, ok := env(name); ok && v != "" && v != d.Values[name] {
			problems = append(problems, setting.Problem{Setting: name, Fix: "leave it out of " + d.Name + ": the function's environment sets another value, by a parameter of the stack"})
		}
	}
	problems = append(problems, poolsOfFunctions(d.Values)...)
	return Sources{Env: env, File: d.Values, FileName: d.Name}.Lookup, setting.Problems(problems, nil)
}

// poolsOfFunctions are the problems of pools that a function may not launch: the stack's policy permits one launch template.
func poolsOfFunctions(values map[string]string) []setting.Problem {
	only := func(name string) (string, bool) { v, ok := values[name]; return v, ok && name == nodes.PoolsSetting }
	policy, _ := nodes.PolicyFromEnv(only) // what is wrong with it is told when all settings are read
	var out []setting.Problem
	for _, pool := range policy.Pools {
		if pool.Launch.Template != "" {
			out = append(out, setting.Problem{
				Setting: nodes.PoolsSetting + "[" + pool.Name + "].launch.template", Value: pool.Launch.Template,
				Fix: "leave it out: the stack's policy permits launches from its own launch template only",
			})
		}
	}
	return out
}

// NotForFunctions returns why a function can't use a setting, "" if it can.
func NotForFunctions(name string) string { return notForFunctions[name] }
