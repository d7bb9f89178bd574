package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/setting"
)

// PoolsSetting is the name of the setting that holds the pools.
const PoolsSetting = "POOLS"

// poolField is a field of a pool as people write it. What reads it and what the schema says of it stand together.
type poolField struct {
	name    string
	meaning string
	schema  map[string]any
	read    func(*Pool, any) error // the error is what to write instead
}

// The schemas of values.
var (
	textSchema  = map[string]any{"type": "string", "minLength": 1}
	textsSchema = map[string]any{"type": "array", "items": textSchema, "minItems": 1, "uniqueItems": true}
)

func wholeSchema(least, most int) map[string]any {
	s := map[string]any{"type": "integer", "minimum": least}
	if most > 0 {
		s["maximum"] = most
	}
	return s
}

const memoryPattern = `^[1-9][0-9]*(Mi|Gi|Ti)?$`

// mostWeight keeps weights to numbers that people tell apart.
const mostWeight = 1000

// poolFields are those of a pool, in the order in which documentation shows them.
var poolFields = []poolField{
	{"name", "name of the pool, in the tag muster.dev/pool of its instances", map[string]any{"type": "string", "pattern": poolName.String()}, readPoolName},
	{"weight", "among pools that would run a pod, the highest weight is chosen, then the cheapest; default 0", wholeSchema(0, mostWeight),
		readWhole(0, mostWeight, func(p *Pool, n int) { p.Weight = n })},
	{"instanceTypes", "types to launch, most wanted first; default INSTANCE_TYPES", textsSchema, readTexts(func(p *Pool) *[]string { return &p.InstanceTypes })},
	{"zones", "availability zones in which to launch; default all that have a subnet", textsSchema, readTexts(func(p *Pool) *[]string { return &p.Zones })},
	{"labels", "labels of its nodes; default NODE_LABELS", map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}, readPoolLabels},
	{"taints", "taints of its nodes, as kubectl writes them; default NODE_TAINTS", map[string]any{"type": "array", "items": textSchema}, readPoolTaints},
	{"spotShare", "most of its nodes that are bought as Spot, in percent; default 100 with SPOT=true, else 0", wholeSchema(0, 100),
		readWhole(0, 100, func(p *Pool, n int) { p.SpotShare = &n })},
	{"limits", "what the pool may use at most; default no limit", objectSchema(limitFields), readObject(limitFields)},
	{"launch", "what its instances boot from; each field defaults to the setting that it names", objectSchema(launchFields), readObject(launchFields)},
}

var limitFields = []poolField{
	{"nodes", "nodes", wholeSchema(1, 0), readWhole(1, 0, func(p *Pool, n int) { p.Limits.Nodes = n })},
	{"cpu", "vCPUs of all its nodes together, by instance type", wholeSchema(1, 0), readWhole(1, 0, func(p *Pool, n int) { p.Limits.CPU = n })},
	{"memory", "memory of all its nodes together, by instance type, for example 64Gi", map[string]any{"type": []string{"string", "integer"}, "pattern": memoryPattern}, readMemory},
}

var launchFields = []poolField{
	{"template", "LAUNCH_TEMPLATE", textSchema, readText(func(p *Pool) *string { return &p.Launch.Template })},
	{"templateVersion", "LAUNCH_TEMPLATE_VERSION", map[string]any{"type": []string{"string", "integer"}, "pattern": `^[1-9][0-9]*$`}, readText(func(p *Pool) *string { return &p.Launch.TemplateVersion })},
	{"ami", "AMI_ID", textSchema, readText(func(p *Pool) *string { return &p.Launch.AMI })},
	{"securityGroups", "SECURITY_GROUP_IDS", textsSchema, readTexts(func(p *Pool) *[]string { return &p.Launch.SecurityGroups })},
	{"instanceProfile", "INSTANCE_PROFILE", textSchema, readText(func(p *Pool) *string { return &p.Launch.InstanceProfile })},
	{"userData", "USER_DATA", textSchema, readText(func(p *Pool) *string { return &p.Launch.UserData })},
	{"agentArgs", "K3S_AGENT_ARGS", textSchema, readText(func(p *Pool) *string { return &p.Launch.AgentArgs })},
}

var poolName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// PoolsSchema is the JSON schema of the pools.
func PoolsSchema() map[string]any {
	pool := objectSchema(poolFields)
	pool["required"] = []string{"name"}
	return map[string]any{"type": "array", "items": pool}
}

func objectSchema(fields []poolField) map[string]any {
	properties := map[string]any{}
	for _, f := range fields {
		s := maps.Clone(f.schema)
		s["description"] = f.meaning
		properties[f.name] = s
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// readPools reads pools from JSON. The error is a *setting.Error that lists every wrong field of every pool.
func readPools(p *Policy, v string) error {
	p.Pools = nil
	if v == "" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(v)))
	dec.UseNumber()
	var list []any
	if err := dec.Decode(&list); err != nil || dec.More() {
		return errors.New(`write a list of pools, in a variable as JSON, for example [{"name": "batch", "taints": ["batch=true:NoSchedule"]}]`)
	}
	var problems []setting.Problem
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", PoolsSetting, i)
		if m, ok := item.(map[string]any); ok {
			if name, ok := m["name"].(string); ok && poolName.MatchString(name) {
				at = fmt.Sprintf("%s[%s]", PoolsSetting, name)
			}
		}
		var pool Pool
		problems = append(problems, fieldProblems(&pool, at, item, poolFields)...)
		if m, ok := item.(map[string]any); ok && m["name"] == nil {
			problems = append(problems, setting.Problem{Setting: at + ".name", Fix: "give every pool a name"})
		}
		p.Pools = append(p.Pools, pool)
	}
	return setting.Problems(problems, nil)
}

// fieldProblems reads the fields of a mapping and returns what is wrong with each.
func fieldProblems(p *Pool, at string, v any, fields []poolField) []setting.Problem {
	m, ok := v.(map[string]any)
	if !ok {
		return []setting.Problem{{Setting: at, Value: shown(v), Fix: "write a mapping of " + fieldNames(fields)}}
	}
	var out []setting.Problem
	for _, key := range slices.Sorted(maps.Keys(m)) {
		i := slices.IndexFunc(fields, func(f poolField) bool { return f.name == key })
		if i < 0 {
			out = append(out, setting.Problem{Setting: at + "." + key, Fix: "there is no such field; use " + fieldNames(fields)})
			continue
		}
		err := fields[i].read(p, m[key])
		var inner *setting.Error
		if errors.As(err, &inner) {
			for _, q := range inner.Problems {
				q.Setting = at + "." + key + q.Setting
				out = append(out, q)
			}
		} else if err != nil {
			out = append(out, setting.Problem{Setting: at + "." + key, Value: shown(m[key]), Fix: err.Error()})
		}
	}
	return out
}

func fieldNames(fields []poolField) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// shown is a value for a message.
func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.Trim(string(text), `"`)
}

func readObject(fields []poolField) func(*Pool, any) error {
	return func(p *Pool, v any) error { return setting.Problems(fieldProblems(p, "", v, fields), nil) }
}

func readPoolName(p *Pool, v any) error {
	s, ok := v.(string)
	if !ok || !poolName.MatchString(s) {
		return errors.New("use up to 63 small letters, digits and -, beginning and ending with a letter or a digit")
	}
	p.Name = s
	return nil
}

func readWhole(least, most int, set func(*Pool, int)) func(*Pool, any) error {
	return func(p *Pool, v any) error {
		n, err := strconv.Atoi(shown(v))
		_, number := v.(json.Number)
		switch {
		case most > 0 && (!number || err != nil || n < least || n > most):
			return fmt.Errorf("write a whole number from %d to %d", least, most)
		case !number || err != nil || n < least:
			return fmt.Errorf("write a whole number of %d or more, or leave it out for no limit", least)
		}
		set(p, n)
		return nil
	}
}

// readText reads a text; a number stands for itself.
func readText(f func(*Pool) *string) func(*Pool, any) error {
	return func(p *Pool, v any) error {
		switch v := v.(type) {
		case string:
			*f(p) = strings.TrimSpace(v)
		case json.Number:
			*f(p) = v.String()
		}
		if *f(p) == "" {
			return errors.New("write a text, or leave it out for the setting's value")
		}
		return nil
	}
}

func readTexts(f func(*Pool) *[]string) func(*Pool, any) error {
	return func(p *Pool, v any) error {
		list, ok := v.([]any)
		var out []string
		for _, item := range list {
			s, text := item.(string)
			ok = ok && text && s != "" && !strings.Contains(s, ",") && !slices.Contains(out, s)
			out = append(out, s)
		}
		if !ok || len(out) == 0 {
			return errors.New("write a list of different texts, or leave it out for the default")
		}
		*f(p) = out
		return nil
	}
}

func readPoolLabels(p *Pool, v any) error {
	m, ok := v.(map[string]any)
	if !ok {
		return errors.New("write a mapping of names to values, for example {team: a}")
	}
	p.Labels = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value, ok := m[name].(string)
		if !ok {
			return fmt.Errorf("write the value of %s in quotes: labels are texts", name)
		}
		if err := checkLabel(name, value); err != nil {
			return err
		}
		p.Labels[name] = value
	}
	return nil
}

func readPoolTaints(p *Pool, v any) error {
	list, ok := v.([]any)
	p.Taints = []Taint{}
	for _, item := range list {
		s, text := item.(string)
		if !text {
			ok = false
			break
		}
		t, err := parseTaint(s)
		if err != nil {
			return err
		}
		p.Taints = append(p.Taints, t)
	}
	if !ok {
		return errors.New("write a list of taints, for example [batch=true:NoSchedule]")
	}
	return nil
}

func readMemory(p *Pool, v any) error {
	digits := shown(v)
	shift := 0
	for unit, by := range map[string]int{"Mi": 20, "Gi": 30, "Ti": 40} {
		if d, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = d, by
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > 1<<62>>shift {
		return errors.New("write a size with Mi, Gi or Ti, for example 64Gi, or leave it out for no limit")
	}
	p.Limits.Memory = n << shift
	return nil
}

// poolProblems checks the pools beside each other and beside the settings.
func (p Policy) poolProblems() []setting.Problem {
	if len(p.Pools) == 0 {
		return nil
	}
	var out []setting.Problem
	seen := map[string]bool{}
	for _, pool := range p.Pools {
		if pool.Name != "" && seen[pool.Name] {
			out = append(out, setting.Problem{Setting: fmt.Sprintf("%s[%s].name", PoolsSetting, pool.Name), Value: pool.Name, Fix: "give every pool a name of its own"})
		}
		seen[pool.Name] = true
	}
	if p.Sizing != SizingFit {
		out = append(out, setting.Problem{Setting: "SIZING", Value: string(p.Sizing), Fix: "use fit with POOLS: which pods the nodes of a pool would run is found by packing"})
	}
	return out
}
