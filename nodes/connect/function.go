package connect

import (
	"errors"
	"maps"
	"slices"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// SettingsVar is the environment variable by which a function gets settings that have no variable of their own: one YAML or JSON mapping,
// as in a settings file. A function's environment is limited to 4 KB, and a stack's parameters to 200.
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

// FunctionLookup finds the settings of a function: in the environment, and for all others in its variable SETTINGS. own are the names of
// settings besides those of Groups. The error is a *setting.Error that lists the names in SETTINGS that there are none of, that a
// function can't use, and that the environment sets already.
func FunctionLookup(env setting.Lookup, own ...string) (setting.Lookup, error) {
	text, _ := env(SettingsVar)
	if text == "" {
		return env, nil
	}
	values, err := parseFile([]byte(text), append(Known(Groups()), own...))
	var wrong *setting.Error
	switch {
	case errors.As(err, &wrong):
		return env, err
	case err != nil: // without the value: it may hold what should not be there
		return env, setting.Problems([]setting.Problem{{Setting: SettingsVar, Fix: "write one mapping, for example {CPU_UP: 0.8, DRAIN_LOCAL_STORAGE: evict}: " + err.Error()}}, nil)
	}
	var problems []setting.Problem
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if why := notForFunctions[name]; why != "" {
			problems = append(problems, setting.Problem{Setting: name, Fix: "leave it out of " + SettingsVar + ": " + why})
		} else if v, ok := env(name); ok && v != "" {
			problems = append(problems, setting.Problem{Setting: name, Fix: "leave it out of " + SettingsVar + ": the function's environment sets it, by a parameter of the stack"})
		}
	}
	problems = append(problems, poolsOfFunctions(values)...)
	return Sources{Env: env, File: values, FileName: SettingsVar}.Lookup, setting.Problems(problems, nil)
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
