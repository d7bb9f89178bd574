package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestTheCommandsReadTablesAsTheyReadADirectory scales a simulated cluster with its record and event log in DynamoDB's API, and looks at
// them with commands that know the tables by settings only.
func TestTheCommandsReadTablesAsTheyReadADirectory(t *testing.T) {
	t.Parallel()
	server := component.Dynalite().Start(t)
	endpoint := "http://" + server.Addr
	ac := aws.Config{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")}
	p := nodes.DefaultPolicy()
	p.Cluster, p.StateTable, p.LogsTable = "blue", "state", "logs"
	simulator := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}, Start: time.Now().Add(-30 * time.Minute)})
	db, err := dynamo.New(ac, dynamo.Config{KeepDays: 30, Now: simulator.Clock().Now}.For(p))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CreateTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := simulator.Client("A", nil)
	n := 0
	r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: db.Store(), EventLog: db.EventLog(), Clock: simulator.Clock(),
		NewID: func() string { n++; return fmt.Sprintf("T%04d", n) }})
	if err != nil {
		t.Fatal(err)
	}
	simulator.SetLoad(0.9)
	for range 4 {
		simulator.Advance(time.Minute)
		if _, err := r.Tick(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}

	env := append(os.Environ(), asMuster+"=1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_REGION=eu-central-1",
		"AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "CLUSTER=blue", "STATE_TABLE=state", "LOGS_TABLE=logs")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status"}, []string{"cluster#blue", "scale-up", "verifying", "1 of 1 launched", "i-002"}},
		{[]string{"explain"}, []string{"SCALE_UP because of TRIGGERED", "scaleUp.launched"}},
		{[]string{"events", "--kind", "scaleUp.begun", "--since", "1h"}, []string{"scaleUp.begun"}},
		{[]string{"replay"}, []string{", 0 different"}},
	} {
		out, err := asProcess(env, append([]string{"nodes"}, c.args...)...)
		if err != nil {
			t.Errorf("%v: %v: %s", c.args, err, out)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%v does not say %q:\n%s", c.args, w, out)
			}
		}
	}
	if out, err := asProcess(append(env, "STATE_TABLE=nothing"), "nodes", "status"); err == nil || !strings.Contains(err.Error(), "status 1") || !strings.Contains(out, "nothing") {
		t.Errorf("a table that is not there: %v: %s", err, out)
	}
}

// TestDoctorCreatesTheTablesWhereItIsAskedTo gives doctor nothing but a server for the tables: everything else fails, the tables are there.
func TestDoctorCreatesTheTablesWhereItIsAskedTo(t *testing.T) {
	t.Parallel()
	server := component.Dynalite().Start(t)
	others := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(others.Close)
	env := append(os.Environ(), asMuster+"=1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_REGION=eu-central-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ENDPOINT_URL="+others.URL, "AWS_ENDPOINT_URL_DYNAMODB=http://"+server.Addr, "CLUSTER=blue", "LAUNCH_TEMPLATE=lt-0123456789abcdef0", "LAUNCH_TEMPLATE_VERSION=1",
		"K3S_URL=https://127.0.0.1:1", "K3S_TOKEN_REF=ssm:/blue/agent-token", "PROMETHEUS_URL=http://127.0.0.1:1", "KUBECONFIG=/dev/null", "DIR="+t.TempDir())
	if out, err := asProcess(env, "nodes", "doctor", "--create-tables"); err == nil || !strings.Contains(err.Error(), "status 2") || !strings.Contains(out, "STATE_TABLE") {
		t.Errorf("without names: %v: %s", err, out)
	}
	env = append(env, "STATE_TABLE=state", "LOGS_TABLE=logs")
	if out, err := asProcess(env, "nodes", "status"); err == nil || !strings.Contains(out, "--create-tables") {
		t.Errorf("before: %v: %s", err, out)
	}
	if out, err := asProcess(env, "nodes", "doctor", "--create-tables"); err == nil || !strings.Contains(out, "checks failed") {
		t.Errorf("doctor: %v: %s", err, out)
	}
	if out, err := asProcess(env, "nodes", "status"); err != nil || !strings.Contains(out, "cluster#blue") {
		t.Errorf("after: %v: %s", err, out)
	}
}
