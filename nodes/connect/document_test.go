package connect

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
	"github.com/muster-dev/muster/setting"
)

// parameters serves parameters of SSM and returns an environment that finds them.
func parameters(t *testing.T, values map[string]string) (map[string]string, *awsapi.API) {
	t.Helper()
	api := awsapi.New(sim.New(sim.Options{}), awsapi.Options{Parameters: values})
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "local")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	return map[string]string{"AWS_REGION": "x-1", "AWS_ENDPOINT_URL_SSM": server.URL}, api
}

func TestReadDocument(t *testing.T) {
	environment, api := parameters(t, map[string]string{
		"/muster/prod/settings":   "CPU_UP: 0.8\nINSTANCE_TYPES: [a, b]\nTICK_SEC: 30\n",
		"/muster/prod/settings:7": "MAX_WORKERS: 7\n",
		"/muster/prod/wrong":      "CPU_UPP: 0.8\nMAX-WORKER: 3\n",
		"/muster/prod/text":       "no mapping",
	})
	read := func(name string) (Document, error) {
		return ReadDocument(t.Context(), name, Known(Groups()), env(environment))
	}

	d, err := read("ssm:/muster/prod/settings")
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "ssm:/muster/prod/settings:1" {
		t.Errorf("read from %s", d.Name)
	}
	if d.Values["INSTANCE_TYPES"] != "a,b" {
		t.Errorf("read %v", d.Values)
	}
	if c := d.Check(); !c.OK || !strings.Contains(c.Name, "/muster/prod/settings:1") || c.Detail != "3 settings" {
		t.Errorf("the check is %+v", c)
	}

	if d, err = read("ssm:/muster/prod/settings:7"); err != nil || d.Values["MAX_WORKERS"] != "7" {
		t.Errorf("a version: %v, %v", d, err)
	}
	if d.Name != "ssm:/muster/prod/settings:7" {
		t.Errorf("a version was read from %s", d.Name)
	}

	for name, wants := range map[string][]string{
		"ssm:/muster/prod/wrong": {"ssm:/muster/prod/wrong:1", "CPU_UPP", "did you mean CPU_UP?", "MAX-WORKER"},
		"ssm:/muster/prod/text":  {"ssm:/muster/prod/text:1", "one a line"},
		"ssm:with blanks":        {"ssm:with blanks", "write ssm:NAME"},
	} {
		_, err := read(name)
		if err == nil || errors.As(err, new(*UnreadError)) {
			t.Errorf("%s: %v, want wrong settings", name, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %q", name, err, want)
			}
		}
	}

	unread := func(what, name string, wants ...string) {
		t.Helper()
		var unread *UnreadError
		_, err := read(name)
		if !errors.As(err, &unread) {
			t.Fatalf("%s: %v", what, err)
		}
		for _, want := range append(wants, name) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %q", what, err, want)
			}
		}
		if c := unread.Check(); c.OK || c.Fix == "" || !strings.Contains(c.Name, name) {
			t.Errorf("%s: the check is %+v", what, c)
		}
	}
	unread("a parameter that is not there", "ssm:/muster/prod/none", "ParameterNotFound", "correct the name and the region")
	api.Deny("ssm:GetParameter")
	unread("without permission", "ssm:/muster/prod/settings", "AccessDeniedException", "ssm:GetParameter")
}

// TestReadDocument_otherForms: a document is for every form of the node plane, so none rejects what is another's.
func TestReadDocument_otherForms(t *testing.T) {
	var text strings.Builder
	for _, name := range OtherForms {
		text.WriteString(name + ": 1\n")
	}
	file := filepath.Join(t.TempDir(), "muster.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := ReadDocument(t.Context(), file, Known(Groups()), env(nil))
	if err != nil || len(d.Values) != len(OtherForms) {
		t.Errorf("%v, %v", d, err)
	}
}

func TestDocumentFromEnv(t *testing.T) {
	environment, _ := parameters(t, map[string]string{"/muster/prod/settings": "CPU_UP: 0.8\n"})
	for _, text := range []string{"", " ", "CPU_UP: 0.8", "ssm:/muster/prod/settings"} {
		environment[SettingsVar] = text
		d, err := DocumentFromEnv(t.Context(), env(environment), Known(Groups()))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := "0.8"
		if strings.TrimSpace(text) == "" {
			want = ""
		}
		if d.Values["CPU_UP"] != want {
			t.Errorf("%q: read %v", text, d)
		}
	}
}

// TestFunctionLookup_document: a function reads the document that the daemon reads, leaves out what is the daemon's, and accepts a value
// that its stack sets as well.
func TestFunctionLookup_document(t *testing.T) {
	environment, _ := parameters(t, map[string]string{
		"/muster/prod/settings": "CPU_UP: 0.8\nCLUSTER: prod\nDIR: /var/lib/muster\nINTERRUPTION_QUEUE: https://sqs/q\nTICK_SEC: 30\nWORKERS_GROUP: defender\nLAMBDA_MARGIN_SEC: 9\n",
		"/muster/prod/other":    "CLUSTER: another\nCLUSTER_TAG: a=b\n",
	})
	environment["CLUSTER"], environment[SettingsVar] = "prod", "ssm:/muster/prod/settings"
	lookup, err := FunctionLookup(t.Context(), env(environment), "LAMBDA_MARGIN_SEC")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"CPU_UP": "0.8", "CLUSTER": "prod", "LAMBDA_MARGIN_SEC": "9", "DIR": "", "INTERRUPTION_QUEUE": "", "TICK_SEC": ""} {
		if got, _ := lookup(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}

	environment[SettingsVar] = "ssm:/muster/prod/other"
	var wrong *setting.Error
	if _, err = FunctionLookup(t.Context(), env(environment)); !errors.As(err, &wrong) || len(wrong.Problems) != 2 {
		t.Errorf("%v, want two wrong settings", err)
	}
	environment[SettingsVar] = "ssm:/muster/prod/none"
	if _, err = FunctionLookup(t.Context(), env(environment)); !errors.As(err, new(*UnreadError)) {
		t.Errorf("%v, want that it was not read", err)
	}
}

// TestReadDocument_noAnswer: Lambda ends an initialisation after 10 s without saying why.
func TestReadDocument_noAnswer(t *testing.T) {
	environment, _ := parameters(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ReadDocument(ctx, "ssm:/muster/prod/settings", Known(Groups()), env(environment))
	if !errors.As(err, new(*UnreadError)) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
