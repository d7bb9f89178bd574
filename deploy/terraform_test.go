package deploy

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/component"
)

var terraformTypes = regexp.MustCompile(`(?m)^(resource|data) "(aws_[a-z_]+)"`)

// TestTerraformProvider: what the module is compared with, in terraform/generate/testdata, is the schema that HashiCorp
// published of the types that the module uses. -update writes it again.
func TestTerraformProvider(t *testing.T) {
	wheels, err := filepath.Glob(filepath.Join(component.TerraformProvider().Fetch(t), "*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("the wheels are %v, %v; want one", wheels, err)
	}
	module, err := os.ReadFile(filepath.Join("terraform", "nodes", "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for _, m := range terraformTypes.FindAllSubmatch(module, -1) {
		name := string(m[2])
		if string(m[1]) == "data" {
			name = "data." + name
		}
		types[name] = true
	}
	args := append([]string{filepath.Join("terraform", "generate", "schema.py"), wheels[0]}, slices.Sorted(maps.Keys(types))...)
	schema, err := exec.CommandContext(t.Context(), "python3", args...).Output()
	if err != nil {
		t.Fatalf("python3 %v: %v", args, err)
	}
	file := filepath.Join("terraform", "generate", "testdata", "provider.json")
	if *update {
		if err := os.WriteFile(file, schema, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, schema) {
		t.Errorf("%s is not what %s says: go test ./deploy -run %s -update", file, filepath.Base(wheels[0]), t.Name())
	}
}
