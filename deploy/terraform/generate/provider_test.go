package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"
)

// provider is what Terraform's AWS provider takes: testdata/provider.json, which TestTerraformProvider in deploy compares with
// what HashiCorp published.
type provider struct {
	Provider string
	Types    map[string]struct {
		Arguments  map[string]argument
		Attributes []string
	}
}

// argument is one of a resource, a data source or a block.
type argument struct {
	Required bool
	Type     string              // string, number, bool, list, map
	Object   map[string]argument // of an attribute with fields
	Block    map[string]argument // of a block
}

func readProvider(t *testing.T) provider {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "provider.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p provider
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// checking is a comparison of a module with the provider.
type checking struct {
	provider
	scope    *hcl.EvalContext
	checked  int // arguments
	referred int // attributes that expressions refer to
	errs     []error
}

func (c *checking) fail(at hcl.Range, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
}

// meta are Terraform's own arguments and blocks of any resource.
var meta = []string{"count", "depends_on", "for_each", "lifecycle", "provider"}

// file checks the resources and data sources of a file.
func (c *checking) file(body *hclsyntax.Body) {
	for _, block := range body.Blocks {
		var name string
		switch {
		case block.Type == "data":
			name = "data." + block.Labels[0]
		case block.Type == "resource" && block.Labels[0] != "terraform_data": // Terraform's own
			name = block.Labels[0]
		default:
			continue
		}
		kind, ok := c.Types[name]
		if !ok {
			c.fail(block.Range(), "the provider has no %s", name)
			continue
		}
		c.block(block.Body, kind.Arguments, meta)
		c.references(block.Body)
	}
}

// block checks the arguments and blocks of a block.
func (c *checking) block(body *hclsyntax.Body, arguments map[string]argument, besides []string) {
	given := map[string]bool{}
	for name, a := range body.Attributes {
		if slices.Contains(besides, name) {
			continue
		}
		given[name] = true
		switch want, ok := arguments[name]; {
		case !ok:
			c.fail(a.Range(), "there is no argument %s", name)
		case want.Block != nil:
			c.fail(a.Range(), "%s is a block, and no argument", name)
		default:
			c.value(a, want)
		}
	}
	for _, inner := range body.Blocks {
		if slices.Contains(besides, inner.Type) {
			continue
		}
		given[inner.Type] = true
		want, ok := arguments[inner.Type]
		if !ok || want.Block == nil {
			c.fail(inner.Range(), "there is no block %s", inner.Type)
			continue
		}
		c.checked++
		c.block(inner.Body, want.Block, nil)
	}
	for name, a := range arguments {
		if a.Required && !given[name] {
			c.fail(body.Range(), "%s is required", name)
		}
	}
}

// value checks the type of an argument.
func (c *checking) value(a *hclsyntax.Attribute, want argument) {
	c.checked++
	v, problems := a.Expr.Value(c.scope)
	if problems.HasErrors() {
		c.errs = append(c.errs, problems)
		return
	}
	is := v.Type()
	fits := v.IsNull()
	switch want.Type {
	case "string", "number", "bool": // which Terraform converts into each other
		fits = fits || is.IsPrimitiveType()
	case "list":
		fits = fits || is.IsTupleType() || is.IsListType()
	case "map", "": // or an object with fields
		fits = fits || is.IsObjectType() || is.IsMapType()
	}
	if number := want.Type == "number" && is == cty.String; number || !fits {
		c.fail(a.Range(), "%s is of type %s, want %s", a.Name, is.FriendlyName(), want.Type)
	}
}

// references checks that what expressions refer to is there.
func (c *checking) references(body *hclsyntax.Body) {
	for _, a := range body.Attributes {
		for _, v := range a.Expr.Variables() {
			var path []string
			for _, step := range v {
				switch step := step.(type) {
				case hcl.TraverseRoot:
					path = append(path, step.Name)
				case hcl.TraverseAttr: // and no index
					path = append(path, step.Name)
				}
			}
			if path[0] == "data" {
				path = append([]string{"data." + path[1]}, path[2:]...)
			} else if !strings.HasPrefix(path[0], "aws_") {
				continue
			}
			if len(path) < 3 {
				continue // of the whole, in depends_on
			}
			c.referred++
			if !slices.Contains(c.Types[path[0]].Attributes, path[2]) {
				c.fail(v.SourceRange(), "%s has no %s", path[0], path[2])
			}
		}
	}
	for _, inner := range body.Blocks {
		c.references(inner.Body)
	}
}

// checkFile compares a file of a module with the provider.
func checkFile(t *testing.T, path string) (*checking, error) {
	t.Helper()
	var d document
	if err := yaml.Unmarshal(template(t), &d); err != nil {
		t.Fatal(err)
	}
	body, scope := parsed(t, path, d, parameters("lambda"))
	c := &checking{provider: readProvider(t), scope: scope}
	c.file(body)
	return c, errors.Join(c.errs...)
}

// TestProvider: the provider has every resource, argument, block and attribute that the module uses, takes values of their
// types, and gets what it requires. terraform validate needs the provider itself.
func TestProvider(t *testing.T) {
	c, err := checkFile(t, filepath.Join(moduleFolder, "main.tf"))
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s: %d arguments and blocks, %d references", c.Provider, c.checked, c.referred)
	if c.checked < 200 || c.referred < 50 {
		t.Error("too little was compared")
	}
}

// TestProvider_rejects: each kind of mistake in the module is found.
func TestProvider_rejects(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleFolder, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ old, new, want string }{
		"a type":                 {`resource "aws_sqs_queue_policy"`, `resource "aws_sqs_queue_rule"`, "the provider has no aws_sqs_queue_rule"},
		"an argument":            {"  billing_mode = ", "  billing_mood = ", "there is no argument billing_mood"},
		"an argument in a block": {"    attribute_name = ", "    attribute = ", "there is no argument attribute"},
		"a required one":         {"  hash_key     = \"pk\"\n\n  attribute {\n    name = \"pk\"\n", "  hash_key     = \"pk\"\n\n  attribute {\n", "name is required"},
		"a block":                {"  ttl {", "  time_to_live {", "there is no block time_to_live"},
		"a block as an argument": {"  ttl {", "  ttl = {}\n\n  server_side_encryption {", "ttl is a block"},
		"a type of values":       {"  billing_mode = \"PAY_PER_REQUEST\"", "  billing_mode = [\"PAY_PER_REQUEST\"]", "billing_mode is of type tuple, want string"},
		"an attribute":           {"= aws_dynamodb_table.state_table.arn", "= aws_dynamodb_table.state_table.url", "aws_dynamodb_table has no url"},
	} {
		broken := strings.Replace(string(text), c.old, c.new, 1)
		if broken == string(text) {
			t.Errorf("%s: the module has no %q", what, c.old)
			continue
		}
		file := filepath.Join(t.TempDir(), "main.tf")
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := checkFile(t, file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, c.want)
		}
	}
}
