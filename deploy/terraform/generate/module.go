package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"go.yaml.in/yaml/v3"
)

const generated = "# Generated from deploy/cloudformation/muster.yaml: go -C deploy/terraform/generate run .\n"

// document is a CloudFormation template whose values keep the tags of their functions.
type document struct {
	Parameters yaml.Node                   `yaml:"Parameters"`
	Rules      map[string]ruleOfParameters `yaml:"Rules"`
	Conditions yaml.Node                   `yaml:"Conditions"`
	Resources  yaml.Node                   `yaml:"Resources"`
	Outputs    yaml.Node                   `yaml:"Outputs"`
}

// ruleOfParameters is a rule for the parameters: assertions that hold if its ruleOfParametersition does.
type ruleOfParameters struct {
	RuleCondition yaml.Node   `yaml:"RuleCondition"`
	Assertions    []assertion `yaml:"Assertions"`
}

type assertion struct {
	Assert            yaml.Node `yaml:"Assert"`
	AssertDescription string    `yaml:"AssertDescription"`
}

// parameter is a parameter of the template.
type parameter struct {
	Type           string   `yaml:"Type"`
	Description    string   `yaml:"Description"`
	Default        *string  `yaml:"Default"`
	AllowedPattern string   `yaml:"AllowedPattern"`
	AllowedValues  []string `yaml:"AllowedValues"`
	MinValue       *int     `yaml:"MinValue"`
	MaxValue       *int     `yaml:"MaxValue"`
	MaxLength      *int     `yaml:"MaxLength"`
}

// output is an output of the template.
type output struct {
	Value       yaml.Node `yaml:"Value"`
	Condition   string    `yaml:"Condition"`
	Description string    `yaml:"Description"`
}

// generate returns the files of the Terraform module for a template, by name.
func generate(text []byte) (map[string][]byte, error) {
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	t := &translation{parameters: map[string]bool{}, resources: map[string]resource{}}
	for name := range entries(&d.Parameters) {
		t.parameters[name] = true
	}
	var order []resource
	for name, node := range entries(&d.Resources) {
		var r resource
		if err := node.Decode(&r); err != nil {
			return nil, fmt.Errorf("resource %s: %w", name, err)
		}
		r.name = name
		t.resources[name] = r
		order = append(order, r)
	}
	files := map[string]string{
		"variables.tf": t.variables(&d.Parameters),
		"main.tf":      t.conditions(&d) + t.all(order),
		"outputs.tf":   t.outputs(&d.Outputs),
	}
	if err := errors.Join(t.errs...); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name, content := range files {
		out[name] = hclwrite.Format([]byte(generated + content))
	}
	return out, nil
}

// variables returns the variables of the parameters, with validations of what the template allows.
func (t *translation) variables(parameters *yaml.Node) string {
	var out strings.Builder
	for name, node := range entries(parameters) {
		var p parameter
		if err := node.Decode(&p); err != nil {
			t.fail("parameter %s: %v", name, err)
			continue
		}
		kind, isList := map[string]string{"String": "string", "Number": "number"}[p.Type], false
		if kind == "" {
			kind, isList = "list(string)", true
		}
		b := body{}
		b.attribute("description", quoted(strings.TrimSpace(p.Description)))
		b.attribute("type", kind)
		switch {
		case p.Default == nil:
		case isList && *p.Default == "":
			b.attribute("default", "[]")
		case p.Type == "Number":
			b.attribute("default", *p.Default)
		default:
			b.attribute("default", quoted(*p.Default))
		}
		v := "var." + snake(name)
		validate := func(condition, message string) {
			b.block("validation", func(b *body) {
				b.attribute("condition", condition)
				b.attribute("error_message", quoted(snake(name)+" "+message+"."))
			})
		}
		if p.AllowedPattern != "" {
			validate(fmt.Sprintf("can(regex(%s, %s))", quoted("^"+p.AllowedPattern+"$"), v), "must match "+p.AllowedPattern)
		}
		if p.AllowedValues != nil {
			validate(fmt.Sprintf("contains([%s], tostring(%s))", quotedList(p.AllowedValues), v), "must be one of "+strings.Join(p.AllowedValues, ", "))
		}
		if p.MinValue != nil {
			validate(fmt.Sprintf("%s >= %d", v, *p.MinValue), fmt.Sprintf("must be %d or more", *p.MinValue))
		}
		if p.MaxValue != nil {
			validate(fmt.Sprintf("%s <= %d", v, *p.MaxValue), fmt.Sprintf("must be %d or less", *p.MaxValue))
		}
		if p.MaxLength != nil {
			validate(fmt.Sprintf("length(%s) <= %d", v, *p.MaxLength), fmt.Sprintf("must have at most %d characters", *p.MaxLength))
		}
		fmt.Fprintf(&out, "\nvariable %q {\n%s}\n", snake(name), b.text.String())
	}
	return out.String()
}

// conditions returns what the module requires, and the conditions and rules of the template.
func (t *translation) conditions(d *document) string {
	var out strings.Builder
	// 1.9: validations and preconditions as used here. 6: data.aws_region has region.
	out.WriteString(`
terraform {
required_version = ">= 1.9"
required_providers {
aws = {
source = "hashicorp/aws"
version = ">= 6.0"
}
}
}

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

locals {
`)
	for name, node := range entries(&d.Conditions) {
		fmt.Fprintf(&out, "%s = %s\n", snake(name), t.expression(node))
	}
	out.WriteString("}\n")
	for name, rule := range d.Rules {
		b := body{}
		b.block("lifecycle", func(b *body) {
			for _, a := range rule.Assertions {
				b.block("precondition", func(b *body) {
					b.attribute("condition", fmt.Sprintf("!(%s) || %s", t.expression(&rule.RuleCondition), t.expression(&a.Assert)))
					b.attribute("error_message", quoted(a.AssertDescription))
				})
			}
		})
		fmt.Fprintf(&out, "\nresource \"terraform_data\" %q {\n%s}\n", snake(name), b.text.String())
	}
	return out.String()
}

func (t *translation) outputs(outputs *yaml.Node) string {
	var out strings.Builder
	for name, node := range entries(outputs) {
		var o output
		if err := node.Decode(&o); err != nil {
			t.fail("output %s: %v", name, err)
			continue
		}
		value := t.expression(&o.Value)
		if o.Condition != "" {
			value = fmt.Sprintf("local.%s ? %s : null", snake(o.Condition), value)
		}
		fmt.Fprintf(&out, "\noutput %q {\ndescription = %s\nvalue = %s\n}\n", snake(name), quoted(o.Description), value)
	}
	return out.String()
}
