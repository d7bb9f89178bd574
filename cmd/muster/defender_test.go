package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
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
	other := filepath.Join(dir, "other.csv")
	if err := os.WriteFile(other, []byte("ts,run,A\n1,r1,x\n"), 0o644); err != nil {
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
		"a column that isn't there": {[]string{"defender", "analyze", other, "--run-column", "wafer_id", "--fault-column", "bad"},
			[]string{`column "wafer_id": is missing`, `column "bad": is missing`, `column "Time": is missing`, `"ts", "run", "A"`, "--time-column"}},
		"a text that is no sensor": {[]string{"defender", "analyze", other, "--run-column", "run", "--time-column", "ts", "--step-column", "-"}, []string{`"x" is not a number`, "ignore the column"}},
		"an unknown output":        {[]string{"defender", "analyze", trace, "--output", "xml"}, []string{"table or json"}},
		"alarms of no chamber":     {[]string{"defender", "alarms", "list", "--chamber", "etch01", "--limit", "0"}, []string{"colon", "--limit"}},
		"nobody acknowledges":      {[]string{"defender", "alarms", "ack", "etch01:a", "run 1", "--by", ""}, []string{"by is empty", "run 1"}},
		"no room, no time":         {[]string{"defender", "run", "--cache-mib", "0", "--leave-timeout", "0s"}, []string{"--cache-mib", "--leave-timeout"}},
		"no chamber":               {[]string{"defender", "reset", "etch01"}, []string{"colon"}},
		"no Cassandra to run on":   {[]string{"defender", "run", "--store", "cassandra", "--slots", "0"}, []string{"CASSANDRA_HOSTS", "--slots is 0"}},
		"nor to create in":         {[]string{"defender", "create-schema", "--replicas", "0"}, []string{"CASSANDRA_HOSTS", "--replicas is 0"}},
		"replicas said twice":      {[]string{"defender", "create-schema", "--print", "--replicas", "3", "--replication", "{}"}, []string{"leave --replicas out"}},
	} {
		var out, errs bytes.Buffer
		if code := command.Run(newRoot(), test.args, &out, &errs); code != command.ExitUsage {
			t.Errorf("%s: exit code is %d, want %d", name, code, command.ExitUsage)
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: the message has no %q:\n%s", name, want, errs.String())
			}
		}
	}
}

func TestTheStatementsOfTheCassandraSchemaArePrintedWithoutAServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3};"},
		{[]string{"--replicas", "5"}, "'replication_factor': 5};"},
		{[]string{"--replication", "{'class': 'SimpleStrategy', 'replication_factor': 1}"}, "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};"},
	} {
		code, out, errs := muster(append([]string{"defender", "create-schema", "--print"}, c.args...)...)
		if code != command.ExitOK || !strings.HasPrefix(out, "CREATE KEYSPACE IF NOT EXISTS muster ") || !strings.Contains(out, c.want) || strings.Count(out, "CREATE TABLE IF NOT EXISTS muster.") != 5 {
			t.Errorf("%v: exit code %d, %s\n%s", c.args, code, errs, out)
		}
	}
}

func TestTheSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	var schema map[string]any
	if code := command.Run(newRoot(), []string{"defender", "schema"}, &out, &errs); code != command.ExitOK || json.Unmarshal(out.Bytes(), &schema) != nil || schema["$id"] == nil {
		t.Errorf("exit code %d, output %.80q", code, out.String())
	}
}

func TestAnalyze(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("ts,chamber,run,lot,A,B\n")
	for run := range 6 {
		for i := range 30 {
			fmt.Fprintf(&b, "%d,etch1:a,r%d,L1,%d,%d\n", i, run, 500+i*i%7+run%3, 300+i*i%5)
		}
	}
	name := filepath.Join(t.TempDir(), "fab.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("says-why-nothing-was-judged", func(t *testing.T) {
		t.Parallel()
		code, out, errs := muster("defender", "analyze", name, "--run-column", "run", "--time-column", "ts", "--step-column", "-", "--chamber-column", "chamber", "--ignore-columns", "lot")
		for _, want := range []string{`group "chamber etch1:a"`, "none of its 6 runs", "at least 10", "--chamber-column", "6 runs: 6 learning"} {
			if code != command.ExitOK || !strings.Contains(out, want) {
				t.Errorf("exit code %d, the output has no %q: %s%s", code, want, out, errs)
			}
		}
	})
}
