package backtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Axis is a setting of the policy and the values that a sweep gives it.
type Axis struct {
	Setting string // environment name
	Values  []string
}

// ParseAxis reads NAME=value,value. INSTANCE_TYPES, whose values are lists, separates its values by semicolons or slashes.
func ParseAxis(text string) (Axis, error) {
	name, values, ok := strings.Cut(text, "=")
	name = strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(name), "-", "_"))
	known := false
	for _, s := range nodes.Settings() {
		known = known || s.Env == name
	}
	separator := ","
	if name == "INSTANCE_TYPES" {
		separator = "/"
		values = strings.ReplaceAll(values, ";", "/")
	}
	a := Axis{Setting: name}
	for _, v := range strings.Split(values, separator) {
		if v = strings.TrimSpace(v); v != "" {
			a.Values = append(a.Values, v)
		}
	}
	switch {
	case !ok || name == "" || len(a.Values) == 0:
		return Axis{}, fmt.Errorf("%q is no sweep: write SETTING=value,value, for example PENDING_UP_SEC=60,180", text)
	case !known:
		return Axis{}, fmt.Errorf("%q sweeps %s, which is no setting of the node plane: see muster nodes settings", text, name)
	}
	return a, nil
}

// Combination is one way to choose a value for each axis.
type Combination struct {
	Changed []Changed
	Policy  nodes.Policy
}

// Combine returns every combination of the axes' values over the settings that lookup has. PODS_PER_NODE means nothing to SIZING=fit:
// of combinations that differ in nothing else only the first is kept. The error lists every wrong value.
func Combine(axes []Axis, lookup setting.Lookup) ([]Combination, error) {
	combinations := [][]Changed{nil}
	for _, a := range axes {
		var next [][]Changed
		for _, c := range combinations {
			for _, v := range a.Values {
				next = append(next, append(c[:len(c):len(c)], Changed{a.Setting, v}))
			}
		}
		combinations = next
	}
	var out []Combination
	var errs []error
	seen := map[string]bool{}
	for _, changed := range combinations {
		p, err := nodes.PolicyFromEnv(func(env string) (string, bool) {
			for _, c := range changed {
				if c.Setting == env {
					return c.Value, true
				}
			}
			return lookup(env)
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p.Sizing == nodes.SizingFit {
			for i := range changed {
				if changed[i].Setting == "PODS_PER_NODE" {
					changed[i].Value = "-"
				}
			}
		}
		if key := fmt.Sprint(changed); !seen[key] {
			seen[key] = true
			out = append(out, Combination{changed, p})
		}
	}
	return out, setting.Join(errs...)
}

// Sweep runs a trace with every combination, one after the other, and calls done, if it is not nil, after each.
func Sweep(ctx context.Context, c Config, combinations []Combination, done func(Result)) ([]Result, error) {
	var out []Result
	for _, k := range combinations {
		c.Policy = k.Policy
		r, err := Run(ctx, c)
		if err != nil {
			return out, err
		}
		r.Settings = k.Changed
		out = append(out, r)
		if done != nil {
			done(r)
		}
	}
	return out, nil
}
