package main

import (
	"fmt"
	"iter"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// translation translates the values of one template.
type translation struct {
	parameters map[string]bool
	resources  map[string]resource
	errs       []error
}

func (t *translation) fail(format string, args ...any) string {
	t.errs = append(t.errs, fmt.Errorf(format, args...))
	return "null"
}

// pseudo are CloudFormation's own parameters.
var pseudo = map[string]string{
	"AWS::Partition": "data.aws_partition.current.partition",
	"AWS::URLSuffix": "data.aws_partition.current.dns_suffix",
	"AWS::Region":    "data.aws_region.current.region",
	"AWS::AccountId": "data.aws_caller_identity.current.account_id",
	"AWS::NoValue":   "null",
}

// references are the attributes that Ref stands for, by type.
var references = map[string]string{
	"AWS::DynamoDB::Table":    "name",
	"AWS::IAM::ManagedPolicy": "arn",
	"AWS::Lambda::Function":   "function_name",
	"AWS::Logs::LogGroup":     "name",
	"AWS::SQS::Queue":         "url",
}

// expression returns a value of the template as an expression of Terraform.
func (t *translation) expression(n *yaml.Node) string {
	switch n.Tag {
	case "!Ref":
		return t.reference(n.Value, "")
	case "!GetAtt":
		name, attribute, _ := strings.Cut(n.Value, ".")
		return t.reference(name, attribute)
	case "!Sub":
		return t.substituted(n.Value)
	case "!Join":
		return fmt.Sprintf("join(%s, %s)", t.expression(n.Content[0]), t.expression(n.Content[1]))
	case "!Equals":
		return fmt.Sprintf("%s == %s", t.expression(n.Content[0]), t.expression(n.Content[1]))
	case "!Not":
		return fmt.Sprintf("!(%s)", t.expression(n.Content[0]))
	case "!Or":
		var either []string
		for _, c := range n.Content {
			either = append(either, fmt.Sprintf("(%s)", t.expression(c)))
		}
		return "(" + strings.Join(either, " || ") + ")"
	case "!If":
		return fmt.Sprintf("local.%s ? %s : %s", snake(n.Content[0].Value), t.expression(n.Content[1]), t.expression(n.Content[2]))
	case "!!str":
		return quoted(n.Value)
	case "!!int", "!!float", "!!bool":
		return n.Value
	case "!!seq":
		return t.list(n)
	case "!!map":
		b := body{}
		for name, value := range entries(n) {
			b.attribute(quoted(name), t.expression(value))
		}
		return "{\n" + b.text.String() + "}"
	}
	return t.fail("line %d: there is no translation for %s", n.Line, n.Tag)
}

// list returns a list. Members that a condition may leave out are left out.
func (t *translation) list(n *yaml.Node) string {
	var all []string
	optional := false
	for _, one := range n.Content {
		optional = optional || one.Tag == "!If"
		all = append(all, t.expression(one))
	}
	if len(all) == 1 && !strings.Contains(all[0], "\n") {
		return "[" + all[0] + "]"
	}
	list := "[\n" + strings.Join(all, ",\n") + ",\n]"
	if optional {
		return "[for s in " + list + " : s if s != null]"
	}
	return list
}

// reference returns what Ref, or GetAtt of an attribute, stands for.
func (t *translation) reference(name, attribute string) string {
	if value, ok := pseudo[name]; ok {
		return value
	}
	if t.parameters[name] {
		return "var." + snake(name)
	}
	r, ok := t.resources[name]
	if !ok {
		return t.fail("there is no %s", name)
	}
	switch attribute {
	case "":
		if attribute = references[r.Type]; attribute == "" {
			return t.fail("there is no translation for a reference to %s, which is a %s", name, r.Type)
		}
	case "Arn":
		attribute = "arn"
	case "QueueName":
		attribute = "name"
	default:
		return t.fail("there is no translation for %s.%s", name, attribute)
	}
	address := r.address() + "." + attribute
	if r.Type == "AWS::Logs::LogGroup" && attribute == "arn" {
		return `"${` + address + `}:*"` // which CloudFormation's has, and Terraform's has not
	}
	return address
}

var substitution = regexp.MustCompile(`\$\{([^}]+)\}`)

// substituted returns a text with substitutions.
func (t *translation) substituted(text string) string {
	var out strings.Builder
	at := 0
	for _, m := range substitution.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(strings.Trim(quoted(text[at:m[0]]), `"`))
		name, attribute, _ := strings.Cut(text[m[2]:m[3]], ".")
		value := t.reference(name, attribute)
		if inner, ok := strings.CutPrefix(value, `"`); ok {
			out.WriteString(strings.TrimSuffix(inner, `"`))
		} else {
			out.WriteString("${" + value + "}")
		}
		at = m[1]
	}
	out.WriteString(strings.Trim(quoted(text[at:]), `"`))
	return `"` + out.String() + `"`
}

// entries returns the entries of a mapping, in their order.
func entries(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// quoted returns a text as a literal, in which nothing is substituted.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "${", "$${", "%{", "%%{").Replace(text) + `"`
}

func quotedList(texts []string) string {
	var out []string
	for _, text := range texts {
		out = append(out, quoted(text))
	}
	return strings.Join(out, ", ")
}

var (
	wordEnd  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	acronyms = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`)
)

// snake returns a name as Terraform writes it: ClusterName is cluster_name.
func snake(name string) string {
	return strings.ToLower(wordEnd.ReplaceAllString(acronyms.ReplaceAllString(name, "${1}_${2}"), "${1}_${2}"))
}

// body is the inside of a block.
type body struct{ text strings.Builder }

func (b *body) attribute(name, value string) { fmt.Fprintf(&b.text, "%s = %s\n", name, value) }

func (b *body) block(name string, inside func(*body)) {
	inner := body{}
	inside(&inner)
	fmt.Fprintf(&b.text, "\n%s {\n%s}\n", name, inner.text.String())
}
