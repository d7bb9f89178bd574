package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Sources finds the value of a setting: a flag goes before the environment, the environment before the file, and the file before
// Defaults. The zero Sources finds nothing.
type Sources struct {
	Flags    map[string]string // by environment name
	Env      setting.Lookup    // nil: no environment
	File     map[string]string // by environment name, see ReadFile
	FileName string            // for Source
	Defaults map[string]string // in place of a setting's own default
}

// Lookup finds a value; it is a setting.Lookup.
func (s Sources) Lookup(name string) (string, bool) {
	v, _, ok := s.find(name)
	return v, ok
}

// Source tells where the value of a setting comes from: "flag", "environment", the file's name, or "default".
func (s Sources) Source(name string) string {
	_, source, _ := s.find(name)
	return source
}

func (s Sources) find(name string) (value, source string, ok bool) {
	if v, ok := s.Flags[name]; ok {
		return v, "flag", true
	}
	if s.Env != nil {
		if v, ok := s.Env(name); ok {
			return v, "environment", true
		}
	}
	if v, ok := s.File[name]; ok {
		return v, s.FileName, true
	}
	v, ok := s.Defaults[name]
	return v, "default", ok
}

// Set reports whether a setting was given at all, be it as its default.
func (s Sources) Set(name string) bool { return s.Source(name) != "default" }

// ReadFile reads settings from a YAML file: one mapping from names to values, a list for a setting of several values, a list of mappings
// for POOLS. Schema describes it. Names are
// those of the environment, or of the flags: CPU_UP and cpu-up are the same. The error lists every name that is not among known,
// with the one that was probably meant, and every value that is neither one value nor a list.
func ReadFile(name string, known []string) (map[string]string, error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading settings: %w: name a YAML file that exists", err)
	case err != nil:
		return nil, fmt.Errorf("reading settings: %w", err)
	}
	out, err := parseFile(data, known)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func parseFile(data []byte, known []string) (map[string]string, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("%w: write one setting a line, for example MAX_WORKERS: 20", err)
	}
	dec := json.NewDecoder(bytes.NewReader(asJSON))
	dec.UseNumber() // numbers stay as they were written, as far as YAML lets them
	var raw map[string]any
	if err := dec.Decode(&raw); err != nil {
		return nil, errors.New("it holds no settings: write one a line, for example MAX_WORKERS: 20")
	}
	keys := make([]string, 0, len(raw))
	for k := range raw {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := map[string]string{}
	var problems []setting.Problem
	problem := func(key, fix string) { // without the value: what is under a wrong name may be a secret
		problems = append(problems, setting.Problem{Setting: key, Fix: fix})
	}
	for _, key := range keys {
		env := strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		if !slices.Contains(known, env) {
			problem(key, unknown(env, known))
			continue
		}
		if _, twice := out[env]; twice {
			problem(key, "it is there twice, written differently; keep one")
			continue
		}
		v, ok := scalar(raw[key])
		if _, list := raw[key].([]any); list && env == nodes.PoolsSetting {
			v, ok = asText(raw[key])
		}
		if !ok {
			problem(key, "write one value, or a list of values")
			continue
		}
		out[env] = v
	}
	return out, setting.Problems(problems, nil)
}

// asText returns a value with parts as it is written in the environment: as JSON.
func asText(v any) (string, bool) {
	text, err := json.Marshal(v)
	return string(text), err == nil
}

// scalar returns a value as one would write it in the environment.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	case bool, json.Number:
		return fmt.Sprint(v), true
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			s, ok := scalar(e)
			if _, nested := e.([]any); nested || !ok || strings.Contains(s, ",") {
				return "", false
			}
			parts[i] = s
		}
		return strings.Join(parts, ","), true
	}
	return "", false
}

// unknown says what to do about a name that is none.
func unknown(name string, known []string) string {
	best, least := "", 4 // edits; more is no typing error
	for _, k := range known {
		if n := edits(name, k); n < least {
			best, least = k, n
		}
	}
	if best == "" {
		return "there is no such setting; see muster nodes settings"
	}
	return "there is no such setting; did you mean " + best + "?"
}

// edits is the Levenshtein distance of two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
