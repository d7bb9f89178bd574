package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/setting"
)

var update = flag.Bool("update", false, "write docs/nodes/settings.schema.json")

const (
	schemaFile  = "../../docs/nodes/settings.schema.json"
	exampleFile = "../../docs/nodes/pools.example.yaml"
)

// TestSchemaOfTheSettingsFile: the published schema is that of the code.
func TestSchemaOfTheSettingsFile(t *testing.T) {
	want, err := Schema(Groups())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of the code (%v): go test ./nodes/connect -run TestSchemaOfTheSettingsFile -update", schemaFile, err)
	}
}

// schema compiles the published schema.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("settings.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("settings.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valid reports whether the schema accepts a settings file.
func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestExampleOfPools: the documented file is accepted by the schema and read as it says.
func TestExampleOfPools(t *testing.T) {
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := valid(t, schema(t), text); err != nil {
		t.Error(err)
	}
	values, err := ReadFile(exampleFile, Known(Groups()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(Sources{Env: env(complete(t)), File: values}.Lookup)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Policy.PoolNames(), []string{"general", "batch", "arm"}; !slices.Equal(got, want) {
		t.Errorf("pools %v, want %v", got, want)
	}
	if templates := s.EC2.Templates(); len(templates) != 3 || templates["arm"].ID == templates["general"].ID {
		t.Errorf("templates %+v", templates)
	}
	if _, err := new(Deciders).For(s.Policy); err != nil {
		t.Error(err)
	}
}

// TestSchemaAndReaderAgree: what the reader rejects of the form of a pool, the schema rejects, and what it accepts, the schema accepts.
func TestSchemaAndReaderAgree(t *testing.T) {
	s := schema(t)
	for text, want := range map[string]bool{
		`{name: a}`: true, `{name: a, weight: 3, spotShare: 0}`: true, `{name: a, limits: {memory: 64Gi, cpu: 2, nodes: 1}}`: true, `{name: a, limits: {memory: 1024}}`: true,
		`{name: a, launch: {templateVersion: 3, template: lt-1}}`: true, `{name: a, labels: {team: b}, taints: ["x=y:NoSchedule"]}`: true,
		`{}`: false, `{name: A}`: false, `{name: a, weight: -1}`: false, `{name: a, weight: 1001}`: false, `{name: a, spotShare: 101}`: false, `{name: a, typo: 1}`: false,
		`{name: a, zones: a}`: false, `{name: a, zones: []}`: false, `{name: a, limits: {nodes: 0}}`: false, `{name: a, limits: {memory: 64GB}}`: false,
		`{name: a, limits: {disk: 1}}`: false, `{name: a, labels: {team: 1}}`: false, `{name: a, launch: {ami: ""}}`: false, `{name: a, instanceTypes: [x, x]}`: false,
	} {
		file := filepath.Join(t.TempDir(), "muster.yaml")
		content := "SIZING: fit\npools:\n- " + text + "\n"
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		values, err := ReadFile(file, Known(Groups()))
		if err == nil {
			_, err = nodes.PolicyFromEnv(Sources{File: values}.Lookup)
		}
		if read := err == nil; read != want {
			t.Errorf("%s: the reader accepts it %t, want %t: %v", text, read, want, err)
		}
		if err := valid(t, s, []byte(content)); (err == nil) != want {
			t.Errorf("%s: the schema says %v, want accepted %t", text, err, want)
		}
	}
}

func TestPoolsOfAFunction(t *testing.T) {
	kv := complete(t)
	kv["SETTINGS"] = "{SIZING: fit, POOLS: [{name: general, weight: 2}, {name: own, launch: {template: lt-9, templateVersion: 1}}]}"
	_, err := FunctionLookup(t.Context(), env(kv))
	var all *setting.Error
	if !errors.As(err, &all) || len(all.Problems) != 1 || all.Problems[0].Setting != "POOLS[own].launch.template" {
		t.Errorf("got %v", err)
	}
	kv["SETTINGS"] = "{SIZING: fit, POOLS: [{name: general, weight: 2}]}"
	lookup, err := FunctionLookup(t.Context(), env(kv))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Parse(lookup); err != nil || len(s.Policy.Pools) != 1 || s.Policy.Pools[0].Weight != 2 {
		t.Errorf("got %+v, %v", s.Policy.Pools, err)
	}
}

func TestPoolWithATypeThatIsNotInTheTable(t *testing.T) {
	p := nodes.DefaultPolicy()
	p.Sizing, p.Pools = nodes.SizingFit, []nodes.Pool{{Name: "general"}, {Name: "odd", InstanceTypes: []string{"x9.huge"}}}
	_, err := new(Deciders).For(p)
	if err == nil || !strings.Contains(err.Error(), "pool odd") || !strings.Contains(err.Error(), "x9.huge") {
		t.Errorf("got %v", err)
	}
}

func TestDoctorNamesThePool(t *testing.T) {
	p := nodes.DefaultPolicy()
	p.Pools = []nodes.Pool{{Name: "batch", Labels: map[string]string{"team": "batch"}}}
	w := nodes.Worker{Instance: nodes.Instance{ID: "i-1", ActionID: "up", Pool: "batch"}, Node: &nodes.Node{Ready: true, Labels: map[string]string{"team": "a"}}}
	c := promisedByNode(Settings{Policy: p, EC2: ec2.Config{Pools: p.Pools}}, "batch", w)
	if c.OK || !strings.HasPrefix(c.Name, "pool batch: ") || !strings.Contains(c.Detail, "team=batch") {
		t.Errorf("got %+v", c)
	}
	text, err := json.Marshal(promisedByKinds(ec2.Config{Pools: p.Pools, UserData: ec2.UserDataK3s}))
	if err != nil || !strings.Contains(string(text), "pool batch: labels and taints") {
		t.Errorf("got %s, %v", text, err)
	}
}
