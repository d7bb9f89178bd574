package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
)

// kubeconform runs kubeconform with the schemas that an API server publishes.
type kubeconform struct {
	binary  string
	schemas string // the pattern of their files
}

// newKubeconform writes a schema for each kind of the API versions.
func newKubeconform(t *testing.T, l *lab.Lab, versions ...string) kubeconform {
	t.Helper()
	dir := t.TempDir()
	for _, version := range versions {
		path := "/openapi/v3/apis/" + version
		if !strings.Contains(version, "/") {
			path = "/openapi/v3/api/" + version
		}
		text, err := l.Kubectl(t.Context(), "get", "--raw", path)
		if err != nil {
			t.Fatal(err)
		}
		var published struct {
			Components struct{ Schemas map[string]map[string]any }
		}
		if err := json.Unmarshal([]byte(text), &published); err != nil {
			t.Fatal(err)
		}
		writeSchemas(t, dir, version, published.Components.Schemas)
	}
	return kubeconform{
		binary:  filepath.Join(component.Kubeconform().Fetch(t), "kubeconform"),
		schemas: filepath.Join(dir, "{{.ResourceKind}}{{.KindSuffix}}.json"),
	}
}

// writeSchemas writes the schema of each kind of an API version under the name by which kubeconform asks for it.
func writeSchemas(t *testing.T, dir, version string, schemas map[string]map[string]any) {
	t.Helper()
	group, number, grouped := strings.Cut(version, "/")
	if !grouped {
		group, number = "", version
	}
	suffix := "-" + number
	if grouped {
		suffix = "-" + strings.Split(group, ".")[0] + suffix
	}
	for _, s := range schemas {
		closeObjects(s)
	}
	for name, s := range schemas {
		kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			kind := k.(map[string]any)
			if kind["group"] != group || kind["version"] != number {
				continue
			}
			text, err := json.Marshal(map[string]any{
				"$ref": "#/components/schemas/" + name, "components": map[string]any{"schemas": schemas},
			})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, strings.ToLower(kind["kind"].(string))+suffix+".json")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// closeObjects rejects unknown fields in every object whose fields the schema lists.
func closeObjects(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		properties, listed := schema["properties"].(map[string]any)
		if _, said := schema["additionalProperties"]; listed && !said {
			schema["additionalProperties"] = false
		}
		for _, inner := range properties { // a field may itself be called "properties"
			closeObjects(inner)
		}
		for _, keyword := range []string{"items", "additionalProperties", "allOf", "anyOf", "oneOf"} {
			closeObjects(schema[keyword])
		}
	case []any:
		for _, inner := range schema {
			closeObjects(inner)
		}
	}
}

// check returns what kubeconform says of objects: how many are valid, or what is wrong.
func (k kubeconform) check(t *testing.T, objects string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), k.binary, "-strict", "-summary", "-schema-location", k.schemas, "-")
	cmd.Stdin = strings.NewReader(objects)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubeconform: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// apiVersions returns the API versions of objects.
func apiVersions(objects string) []string {
	found := map[string]bool{}
	for line := range strings.Lines(objects) {
		if version, ok := strings.CutPrefix(line, "apiVersion:"); ok {
			found[strings.TrimSpace(version)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// checkRejects: kubeconform finds each mistake, so that it can't pass for want of schemas.
func (k kubeconform) checkRejects(t *testing.T, objects string) {
	t.Helper()
	for what, c := range map[string]struct{ old, new, want string }{
		"an unknown field":   {"\nmetadata:", "\nmetadatas: {}\nmetadata:", "metadatas"},
		"a field twice":      {"\nmetadata:", "\nmetadata: {}\nmetadata:", "already"},
		"an unknown kind":    {"\nkind: ", "\nkind: Un", "could not find schema"},
		"an unknown version": {"apiVersion: ", "apiVersion: un", "could not find schema"},
		"a wrong type":       {"\nmetadata:\n", "\nmetadata:\n  generation: many\n", "got string, want integer"},
		"one further inside": {"\nspec:\n", "\nspec:\n  maxPods: 1\n", "maxPods"},
	} {
		broken := strings.Replace(objects, c.old, c.new, 1)
		if broken == objects {
			t.Fatalf("%s: the objects have no %q", what, c.old)
		}
		if out, err := k.check(t, broken); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %s, %v; want an error with %q", what, out, err, c.want)
		}
	}
}
