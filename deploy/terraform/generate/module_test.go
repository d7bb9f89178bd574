package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"go.yaml.in/yaml/v3"
)

func template(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestModule: the module is what the template says now.
func TestModule(t *testing.T) {
	files, err := generate(template(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(moduleFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the template says: go -C deploy/terraform/generate run .", name)
		}
	}
}

// TestUntranslatable: what has no translation is an error, and is never left out.
func TestUntranslatable(t *testing.T) {
	for what, c := range map[string]struct{ old, new, want string }{
		"a property":   {"      SqsManagedSseEnabled: true\n", "      SqsManagedSseEnabled: true\n      DelaySeconds: 3\n", "DelaySeconds"},
		"a type":       {"Type: AWS::SQS::QueuePolicy", "Type: AWS::SNS::Topic", "AWS::SNS::Topic"},
		"a function":   {"!Join [", "!Select [", "!Select"},
		"a reference":  {"!GetAtt DeadLetters.Arn", "!GetAtt DeadLetters.QueueUrl", "DeadLetters.QueueUrl"},
		"a nested one": {"{AttributeName: expiresEpoch, Enabled: true}", "{AttributeName: expiresEpoch, Enabled: true, Also: 1}", "Also"},
	} {
		text := strings.Replace(string(template(t)), c.old, c.new, 1)
		if text == string(template(t)) {
			t.Fatalf("%s: the template has no %q", what, c.old)
		}
		if _, err := generate([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that names %s", what, err, c.want)
		}
	}
}

// parameters are values of the template's parameters, for functions and for a daemon.
func parameters(runAs string) map[string]any {
	return map[string]any{
		"ClusterName": "prod", "RunAs": runAs, "KubeApiUrl": "https://10.0.0.10:6443", "PrometheusUrl": "http://10.0.0.11:9090", "ReferencePath": "/muster",
		"SecretArns": []any{"arn:secret"}, "LaunchTemplateId": "lt-0a1b", "LaunchTemplateVersion": 7, "NodeRoleArn": "arn:role", "WorkerSubnetIds": []any{"subnet-1", "subnet-2"},
		"InstanceTypes": "t3.large", "Spot": "true", "Prices": "aws", "MinWorkers": 2, "MaxWorkers": 10, "K3sUrl": "https://10.0.0.10:6443", "VolumeKeyArn": "arn:key", "CodeBucket": "code",
		"CodeKey": "muster.zip", "Architecture": "arm64", "Settings": "{}", "FunctionSubnetIds": []any{"subnet-3"}, "FunctionSecurityGroupIds": []any{"sg-1"},
		"LogRetentionDays": 30, "EventLogDays": 30, "AlarmTopicArn": "arn:topic",
		"AWS::Partition": "aws", "AWS::Region": "eu-central-1", "AWS::AccountId": "123456789012", "AWS::URLSuffix": "amazonaws.com",
	}
}

// stack resolves the values of the template by itself, so that the translation is compared with something else.
type stack struct{ values map[string]any }

func (s stack) resolve(n *yaml.Node) any {
	switch n.Tag {
	case "!Ref":
		if v, ok := s.values[n.Value]; ok {
			return v
		}
		return n.Value + ".Ref"
	case "!GetAtt":
		return n.Value
	case "!Sub":
		return substitution.ReplaceAllStringFunc(n.Value, func(m string) string {
			name := m[2 : len(m)-1]
			if v, ok := s.values[name]; ok {
				return fmt.Sprint(v)
			}
			return name
		})
	case "!If":
		daemon := s.values["RunAs"] == "daemon"
		if condition := n.Content[0].Value; condition == "Functions" && daemon || condition == "Daemon" && !daemon {
			return s.resolve(n.Content[2])
		}
		return s.resolve(n.Content[1]) // the parameters above fulfil the other conditions
	case "!Join":
		var parts []string
		for _, part := range s.resolve(n.Content[1]).([]any) {
			parts = append(parts, fmt.Sprint(part))
		}
		return strings.Join(parts, n.Content[0].Value)
	case "!!seq":
		out := []any{}
		for _, m := range n.Content {
			out = append(out, s.resolve(m))
		}
		return out
	case "!!map":
		out := map[string]any{}
		for name, value := range entries(n) {
			out[name] = s.resolve(value)
		}
		return out
	}
	var v any
	_ = n.Decode(&v) // a scalar can be decoded
	return v
}

// plain returns a value as JSON has it.
func plain(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// evaluated are the resources of the module for some parameters, by type and name. A reference to another resource is
// what stack makes of it.
type evaluated map[string]map[string]any

func evaluate(t *testing.T, d document, values map[string]any) evaluated {
	t.Helper()
	body, scope := parsed(t, filepath.Join(moduleFolder, "main.tf"), d, values)
	out := evaluated{}
	for _, block := range body.Blocks {
		if block.Type != "resource" {
			continue
		}
		if count, ok := block.Body.Attributes["count"]; ok && valueOf(t, count.Expr, scope).RawEquals(cty.NumberIntVal(0)) {
			continue
		}
		if out[block.Labels[0]] == nil {
			out[block.Labels[0]] = map[string]any{}
		}
		out[block.Labels[0]][block.Labels[1]] = inside(t, block.Body, scope)
	}
	return out
}

// parsed returns what is in a file of the module, and what its expressions can refer to.
func parsed(t *testing.T, path string, d document, values map[string]any) (*hclsyntax.Body, *hcl.EvalContext) {
	t.Helper()
	file, problems := hclparse.NewParser().ParseHCLFile(path)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	vars := map[string]cty.Value{}
	for name, value := range values {
		if !strings.HasPrefix(name, "AWS::") {
			vars[snake(name)] = ctyOf(value)
		}
	}
	scope := &hcl.EvalContext{
		Functions: map[string]function.Function{"jsonencode": stdlib.JSONEncodeFunc, "join": stdlib.JoinFunc},
		Variables: map[string]cty.Value{
			"var": cty.ObjectVal(vars),
			"data": ctyOf(map[string]any{
				"aws_partition":       map[string]any{"current": map[string]any{"partition": values["AWS::Partition"], "dns_suffix": values["AWS::URLSuffix"]}},
				"aws_region":          map[string]any{"current": map[string]any{"region": values["AWS::Region"]}},
				"aws_caller_identity": map[string]any{"current": map[string]any{"account_id": values["AWS::AccountId"]}},
			}),
		},
	}
	for kind, all := range addresses(t, d) {
		scope.Variables[kind] = ctyOf(all)
	}
	body := file.Body.(*hclsyntax.Body)
	for _, block := range body.Blocks {
		if block.Type == "locals" { // the file begins with them
			locals := map[string]cty.Value{}
			for name, a := range block.Body.Attributes {
				locals[name] = valueOf(t, a.Expr, scope)
			}
			scope.Variables["local"] = cty.ObjectVal(locals)
		}
	}
	return body, scope
}

// inside returns the arguments of a block, and the blocks in it by name.
func inside(t *testing.T, b *hclsyntax.Body, scope *hcl.EvalContext) map[string]any {
	out := map[string]any{}
	for name, a := range b.Attributes {
		if name == "depends_on" {
			continue
		}
		value := valueOf(t, a.Expr, scope)
		text, err := stdlib.JSONEncode(value)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(text.AsString()), &v); err != nil {
			t.Fatal(err)
		}
		out[name] = v
	}
	for _, block := range b.Blocks {
		out[block.Type] = inside(t, block.Body, scope)
	}
	return out
}

func valueOf(t *testing.T, e hcl.Expression, scope *hcl.EvalContext) cty.Value {
	t.Helper()
	v, problems := e.Value(scope)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	return v
}

// addresses returns what references to the resources give: what stack makes of them.
func addresses(t *testing.T, d document) map[string]map[string]any {
	out := map[string]map[string]any{}
	for name, node := range entries(&d.Resources) {
		var r resource
		if err := node.Decode(&r); err != nil {
			t.Fatal(err)
		}
		kind := types[r.Type]
		if out[kind] == nil {
			out[kind] = map[string]any{}
		}
		arn := name + ".Arn"
		attributes := map[string]any{"arn": arn, "name": name + ".Ref", "url": name + ".Ref", "function_name": name + ".Ref"}
		switch r.Type {
		case "AWS::IAM::ManagedPolicy":
			attributes["arn"] = name + ".Ref"
		case "AWS::SQS::Queue":
			attributes["name"] = name + ".QueueName"
		}
		out[kind][snake(name)] = any(attributes)
		if r.Condition != "" {
			out[kind][snake(name)] = []any{attributes}
		}
	}
	return out
}

// ctyOf returns a value as Terraform has it.
func ctyOf(v any) cty.Value {
	switch v := v.(type) {
	case string:
		return cty.StringVal(v)
	case int:
		return cty.NumberIntVal(int64(v))
	case []any:
		var all []cty.Value
		for _, m := range v {
			all = append(all, ctyOf(m))
		}
		return cty.TupleVal(all)
	case map[string]any:
		all := map[string]cty.Value{}
		for name, m := range v {
			all[name] = ctyOf(m)
		}
		return cty.ObjectVal(all)
	}
	panic(fmt.Sprintf("%T", v))
}

// TestModuleEqualsTheTemplate evaluates the module's expressions as Terraform does, and the template's by other code, and
// compares what permits, what alarms, what runs with which settings, and which resources there are.
func TestModuleEqualsTheTemplate(t *testing.T) {
	for _, runAs := range []string{"lambda", "daemon"} {
		t.Run(runAs, func(t *testing.T) {
			var d document
			if err := yaml.Unmarshal(template(t), &d); err != nil {
				t.Fatal(err)
			}
			values := parameters(runAs)
			s, module := stack{values}, evaluate(t, d, values)
			policies, alarms, functions, total := 0, 0, 0, 0
			for name, node := range entries(&d.Resources) {
				var r resource
				if err := node.Decode(&r); err != nil {
					t.Fatal(err)
				}
				got, exists := module[types[r.Type]][snake(name)].(map[string]any)
				if wanted := r.Condition == "" || (r.Condition == "Functions") == (runAs == "lambda"); exists != wanted {
					t.Errorf("%s is there: %t, want %t", name, exists, wanted)
				}
				if !exists {
					continue
				}
				total++
				want := s.resolve(&r.Properties).(map[string]any)
				if document, ok := want["PolicyDocument"]; ok {
					policies++
					same(t, name, fromJSON(t, got["policy"]), withoutNulls(plain(t, document)))
				}
				switch r.Type {
				case "AWS::IAM::Role":
					policies++
					same(t, name, fromJSON(t, got["assume_role_policy"]), plain(t, want["AssumeRolePolicyDocument"]))
					for _, p := range want["Policies"].([]any) {
						inline := p.(map[string]any)
						beside := module["aws_iam_role_policy"][snake(name)+"_"+inline["PolicyName"].(string)].(map[string]any)
						// Terraform's ARN of a log group lacks what CloudFormation's has.
						text := strings.ReplaceAll(beside["policy"].(string), "Logs.Arn:*", "Logs.Arn")
						same(t, name, fromJSON(t, text), plain(t, inline["PolicyDocument"]))
					}
					for _, arn := range want["ManagedPolicyArns"].([]any) {
						policy := strings.TrimSuffix(arn.(string), ".Ref")
						beside := module["aws_iam_role_policy_attachment"][snake(name)+"_"+snake(policy)].(map[string]any)
						same(t, name, beside["policy_arn"], arn)
					}
				case "AWS::CloudWatch::Alarm":
					alarms++
					for property, value := range want {
						if property == "Dimensions" {
							dimension := value.([]any)[0].(map[string]any)
							value = map[string]any{dimension["Name"].(string): dimension["Value"]}
						}
						same(t, name+"."+property, got[snake(property)], plain(t, value))
					}
				case "AWS::Lambda::Function":
					functions++
					same(t, name, got["environment"].(map[string]any)["variables"], plain(t, want["Environment"].(map[string]any)["Variables"]))
					same(t, name, []any{got["timeout"], got["memory_size"]}, plain(t, []any{want["Timeout"], want["MemorySize"]}))
				case "AWS::Events::Rule":
					for _, target := range want["Targets"].([]any) {
						beside := module["aws_cloudwatch_event_target"][snake(name)].(map[string]any)
						same(t, name, beside["arn"], target.(map[string]any)["Arn"])
					}
				}
			}
			t.Logf("%d resources, among them %d with policies, %d alarms, %d functions", total, policies, alarms, functions)
			if policies < 6 || alarms < 2 || total < 13 {
				t.Error("too little was compared")
			}
		})
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s differs.\nTerraform:      %v\nCloudFormation: %v", what, got, want)
	}
}

func fromJSON(t *testing.T, v any) any {
	t.Helper()
	text, _ := v.(string)
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return out
}

// withoutNulls leaves out of lists what a condition leaves out.
func withoutNulls(v any) any {
	document := v.(map[string]any)
	var kept []any
	for _, s := range document["Statement"].([]any) {
		if s != "AWS::NoValue.Ref" {
			kept = append(kept, s)
		}
	}
	document["Statement"] = kept
	return document
}

// TestTerraform has Terraform itself check the module's format and, where its provider is at hand, the module. A machine
// without Terraform has the tests above.
func TestTerraform(t *testing.T) {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		t.Log("Terraform is not installed: format and schema are not checked by it")
		return
	}
	dir := filepath.Join(t.TempDir(), "nodes") // init writes into it
	if err := os.CopyFS(dir, os.DirFS(moduleFolder)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), terraform, append([]string{"-chdir=" + dir}, args...)...)
		cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("terraform %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("fmt", "-check", "-diff")
	providers := os.Getenv("MUSTER_TERRAFORM_PROVIDERS")
	if providers == "" {
		t.Log("MUSTER_TERRAFORM_PROVIDERS names no directory with the provider hashicorp/aws: its schema is not checked")
		return
	}
	run("init", "-backend=false", "-plugin-dir="+providers)
	run("validate")
}
