package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefenderCommandsTellOfWrongUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("schema: 1\nversion: 0\nstrategies: [{name: a, foo: 1}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(trace, []byte("set,wafer\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"faults of strategies": {[]string{"defender", "check", bad}, []string{"unknown field foo", "/version"}},
		"run with them":        {[]string{"defender", "run", "--strategies", bad}, []string{"unknown field foo", "/version"}},
		"analyze with them":    {[]string{"defender", "analyze", trace, "--strategies", bad}, []string{"unknown field foo"}},
		"no files":             {[]string{"defender", "analyze"}, []string{"at least 1"}},
		"a broken file":        {[]string{"defender", "analyze", trace}, []string{"bad.csv:1", "Step Number"}},
		"an unknown output":    {[]string{"defender", "analyze", trace, "--output", "xml"}, []string{"table or json"}},
		"no dead letters":      {[]string{"defender", "dead", "requeue"}, []string{"--all"}},
		"no number":            {[]string{"defender", "dead", "requeue", "x", "0"}, []string{`"x"`, `"0"`}},
		"a limit of 0":         {[]string{"defender", "dead", "list", "--limit", "0"}, []string{"--limit"}},
		"alarms of no chamber": {[]string{"defender", "alarms", "list", "--chamber", "etch01", "--limit", "0"}, []string{"colon", "--limit"}},
		"nobody acknowledges":  {[]string{"defender", "alarms", "ack", "etch01:a", "run 1", "--by", ""}, []string{"by is empty", "run 1"}},
		"no room, no time":     {[]string{"defender", "run", "--cache-mib", "0", "--leave-timeout", "0s"}, []string{"--cache-mib", "--leave-timeout"}},
		"no chamber":           {[]string{"defender", "reset", "etch01"}, []string{"colon"}},
	} {
		var out, errs bytes.Buffer
		if code := run(test.args, &out, &errs); code != exitUsage {
			t.Errorf("%s: exit code is %d, want %d", name, code, exitUsage)
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: the message has no %q:\n%s", name, want, errs.String())
			}
		}
	}
}

func TestTheSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	var schema map[string]any
	if code := run([]string{"defender", "schema"}, &out, &errs); code != exitOK || json.Unmarshal(out.Bytes(), &schema) != nil || schema["$id"] == nil {
		t.Errorf("exit code %d, output %.80q", code, out.String())
	}
}
