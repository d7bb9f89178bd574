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
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/ec2/event"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/lambda"
)

const templateFile = "cloudformation/muster.yaml"

// template is the CloudFormation template as plain data; what its functions refer to is left as text.
type template struct {
	Resources map[string]struct {
		Type                                string
		Condition                           string
		DeletionPolicy, UpdateReplacePolicy string
		Properties                          map[string]any
	}
}

func readTemplate(t *testing.T) template {
	t.Helper()
	b, err := os.ReadFile(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	var out template
	if err := yaml.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Resources) < 20 {
		t.Fatalf("%d resources", len(out.Resources))
	}
	return out
}

// statement is a statement of a policy.
type statement struct {
	Sid, Effect      string
	Action, Resource any
	Condition        map[string]map[string]any
}

// statements finds every statement below v, also in branches of a condition.
func statements(t *testing.T, v any) []statement {
	t.Helper()
	var out []statement
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["Effect"]; ok {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			var s statement
			if err := json.Unmarshal(b, &s); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			return []statement{s}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k != "AssumeRolePolicyDocument" {
				out = append(out, statements(t, v[k])...)
			}
		}
	case []any:
		for _, x := range v {
			out = append(out, statements(t, x)...)
		}
	}
	return out
}

// texts returns the texts in v.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, x := range v {
			out = append(out, texts(x)...)
		}
		return out
	}
	return nil
}

// allowed returns the actions that statements allow, those of DynamoDB with the table, as calls names it.
func allowed(list []statement) []string {
	var out []string
	for _, s := range list {
		if s.Effect != "Allow" {
			continue
		}
		for _, a := range texts(s.Action) {
			if !strings.HasPrefix(a, "dynamodb:") {
				out = append(out, a)
				continue
			}
			for _, r := range texts(s.Resource) {
				out = append(out, a+map[string]string{"StateTable.Arn": " calls-state", "LogsTable.Arn": " calls-logs"}[r])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// implied are permissions that no request of ours names: AWS asks for them on the way, or uses the role itself.
var implied = []struct {
	action string
	of     string // the policy that has it
	why    string
	page   string
}{
	{"ec2:CreateTags", "NodePlanePolicy", "RunInstances with tags", "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/supported-iam-actions-tagging.html"},
	{"iam:PassRole", "NodePlanePolicy", "RunInstances with the launch template's instance profile", "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/permission-to-pass-iam-roles.html"},
	{"iam:CreateServiceLinkedRole", "NodePlanePolicy", "the account's first Spot request", "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html"},
	{"kms:CreateGrant", "NodePlanePolicy", "volumes with a key of one's own", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"kms:Decrypt", "NodePlanePolicy", "volumes with a key of one's own", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"kms:DescribeKey", "NodePlanePolicy", "volumes with a key of one's own", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"kms:GenerateDataKeyWithoutPlaintext", "NodePlanePolicy", "volumes with a key of one's own", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"kms:ReEncryptFrom", "NodePlanePolicy", "volumes from a snapshot under another key", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"kms:ReEncryptTo", "NodePlanePolicy", "volumes from a snapshot under another key", "https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html"},
	{"logs:CreateLogStream", "TickRole", "Lambda writes the function's log", "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs.html"},
	{"logs:PutLogEvents", "TickRole", "Lambda writes the function's log", "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs.html"},
	{"logs:CreateLogStream", "InterruptionsRole", "Lambda writes the function's log", "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs.html"},
	{"logs:PutLogEvents", "InterruptionsRole", "Lambda writes the function's log", "https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs.html"},
	{"sqs:SendMessage", "InterruptionsRole", "Lambda sends on what failed", "https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html"},
	{"ec2:AssignPrivateIpAddresses", "FunctionNetworkPolicy", "Lambda attaches the function to its subnets", "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"},
	{"ec2:CreateNetworkInterface", "FunctionNetworkPolicy", "Lambda attaches the function to its subnets", "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"},
	{"ec2:DeleteNetworkInterface", "FunctionNetworkPolicy", "Lambda attaches the function to its subnets", "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"},
	{"ec2:DescribeNetworkInterfaces", "FunctionNetworkPolicy", "Lambda attaches the function to its subnets", "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"},
	{"ec2:UnassignPrivateIpAddresses", "FunctionNetworkPolicy", "Lambda attaches the function to its subnets", "https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html"},
}

// needsNone are requests that every identity may make.
var needsNone = map[string]string{
	"sts:GetCallerIdentity": "https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html",
}

// TestWhatIsPermittedIsEnoughAndNoMore lets the real adapters run a cluster's life over the wire and compares what they asked for with
// what the template permits to those who ask, both ways.
func TestWhatIsPermittedIsEnoughAndNoMore(t *testing.T) {
	p, tpl := live(t), readTemplate(t)
	for _, c := range []struct {
		name     string
		policies []string // resources of the template
		used     []string
		beside   []string // policies of which the others may use something
	}{
		{"the tick function", []string{"NodePlanePolicy", "DiagnosePolicy", "FunctionNetworkPolicy", "TickRole"}, p.used.of("tick", "references", "document"), nil},
		{"the interruptions function", []string{"NodePlanePolicy", "FunctionNetworkPolicy", "InterruptionsRole"}, p.used.of("interruptions", "references", "document"), nil},
		{"the daemon", []string{"NodePlanePolicy", "DiagnosePolicy", "QueuePolicy"}, p.used.of("tick", "interruptions", "references", "document", "queue"), nil},
		{"people", []string{"OperatorPolicy"}, p.used.of("doctor", "reader", "document"), []string{"NodePlanePolicy", "DiagnosePolicy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var permits, others []string
			for _, name := range c.policies {
				permits = append(permits, allowed(statements(t, tpl.Resources[name].Properties))...)
			}
			for _, name := range c.beside {
				others = append(others, allowed(statements(t, tpl.Resources[name].Properties))...)
			}
			for _, call := range c.used {
				if !slices.Contains(permits, call) && !slices.Contains(others, call) && needsNone[call] == "" {
					t.Errorf("%s is asked for and not permitted", call)
				}
			}
			for _, action := range permits {
				is := slices.ContainsFunc(implied, func(i struct{ action, of, why, page string }) bool {
					return i.action == action && slices.Contains(c.policies, i.of)
				})
				if used := slices.Contains(c.used, action); !used && !is {
					t.Errorf("%s is permitted and neither asked for nor implied", action)
				} else if used && is {
					t.Errorf("%s is asked for: it is not merely implied", action)
				}
			}
		})
	}
	for _, i := range implied {
		if !slices.Contains(allowed(statements(t, tpl.Resources[i.of].Properties)), i.action) {
			t.Errorf("%s is listed as implied, but %s does not have it", i.action, i.of)
		}
		if !strings.HasPrefix(i.page, "https://docs.aws.amazon.com/") || i.why == "" {
			t.Errorf("%s: where does AWS say so, and what is it for?", i.action)
		}
	}
	t.Run("the cluster role", func(t *testing.T) { clusterRole(t, p) })
	// What makes tables is not what runs.
	if setup := p.used.of("setup"); len(setup) == 0 || slices.Contains(p.used.of("tick", "interruptions"), setup[0]) {
		t.Errorf("setup asked for %v", setup)
	}
}

// TestEveryRoleUsesThePoliciesThatAreCompared keeps the comparison above honest: a role must not get anything from elsewhere.
func TestEveryRoleUsesThePoliciesThatAreCompared(t *testing.T) {
	tpl := readTemplate(t)
	for role, want := range map[string][]string{
		"TickRole":          {"NodePlanePolicy", "DiagnosePolicy", "FunctionNetworkPolicy"},
		"InterruptionsRole": {"NodePlanePolicy", "FunctionNetworkPolicy"},
	} {
		if got := texts(tpl.Resources[role].Properties["ManagedPolicyArns"]); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", role, got, want)
		}
	}
	for name, r := range tpl.Resources {
		if r.Type != "AWS::IAM::Role" && r.Type != "AWS::IAM::ManagedPolicy" {
			continue
		}
		for _, s := range statements(t, r.Properties) {
			for _, a := range texts(s.Action) {
				if strings.Contains(a, "*") {
					t.Errorf("%s: %s", name, a)
				}
				if slices.Contains(texts(s.Resource), "*") && s.Effect == "Allow" && !strings.HasPrefix(a, "ec2:Describe") && a != "pricing:GetProducts" && !strings.Contains(a, "NetworkInterface") && !strings.Contains(a, "PrivateIpAddresses") {
					t.Errorf("%s: %s on every resource", name, a)
				}
			}
		}
	}
}

// TestSettingsInSSM: the functions may read a document of settings beside their other parameters, below the cluster's path, and not the
// token by which nodes join.
func TestSettingsInSSM(t *testing.T) {
	tpl := readTemplate(t)
	const path = ":parameter${ReferencePath}/${ClusterName}/"
	var reads []string
	for _, s := range statements(t, tpl.Resources["NodePlanePolicy"].Properties) {
		if slices.Contains(texts(s.Action), "ssm:GetParameter") {
			reads = append(reads, texts(s.Resource)...)
		}
	}
	if len(reads) != 1 || !strings.HasSuffix(reads[0], path+"*") {
		t.Errorf("parameters that are read: %v", reads)
	}
	for _, role := range []string{"TickRole", "InterruptionsRole"} {
		var denied []string
		for _, s := range statements(t, tpl.Resources[role].Properties) {
			if s.Effect == "Deny" && slices.Contains(texts(s.Action), "ssm:GetParameter") && s.Condition == nil {
				denied = append(denied, texts(s.Resource)...)
			}
		}
		if len(denied) != 1 || !strings.HasSuffix(denied[0], path+"agent-token") {
			t.Errorf("%s is denied %v", role, denied)
		}
	}
}

func TestWhatDestroysOrCostsIsConditional(t *testing.T) {
	tpl := readTemplate(t)
	list := statements(t, tpl.Resources["NodePlanePolicy"].Properties)
	conditions := func(action, resource string) []map[string]map[string]any {
		var out []map[string]map[string]any
		for _, s := range list {
			if slices.Contains(texts(s.Action), action) && slices.ContainsFunc(texts(s.Resource), func(r string) bool { return strings.Contains(r, resource) }) {
				out = append(out, s.Condition)
			}
		}
		return out
	}
	for _, c := range []struct{ action, resource, operator, key, value string }{
		{"ec2:TerminateInstances", ":instance/", "StringEquals", "aws:ResourceTag/muster.dev/cluster", "ClusterName"},
		{"ec2:TerminateInstances", ":instance/", "StringNotEquals", "aws:ResourceTag/muster.dev/role", "control-plane"},
		{"ec2:RunInstances", ":instance/", "StringEquals", "aws:RequestTag/muster.dev/cluster", "ClusterName"},
		{"ec2:RunInstances", ":volume/", "StringEquals", "aws:RequestTag/muster.dev/cluster", "ClusterName"},
		{"ec2:RunInstances", ":subnet/", "StringEquals", "ec2:SubnetID", "WorkerSubnetIds"},
		{"ec2:RunInstances", ":security-group/", "ArnEquals", "ec2:LaunchTemplate", "${LaunchTemplateId}"},
		{"ec2:CreateTags", ":instance/", "StringEquals", "ec2:CreateAction", "RunInstances"},
		{"iam:PassRole", "NodeRoleArn", "StringEquals", "iam:PassedToService", "ec2.amazonaws.com"},
		{"iam:CreateServiceLinkedRole", "AWSServiceRoleForEC2Spot", "StringEquals", "iam:AWSServiceName", "spot.amazonaws.com"},
		{"kms:CreateGrant", "VolumeKeyArn", "Bool", "kms:GrantIsForAWSResource", "true"},
	} {
		found := conditions(c.action, c.resource)
		if len(found) != 1 || !strings.Contains(fmt.Sprint(found[0][c.operator][c.key]), c.value) {
			t.Errorf("%s on %s: conditions %v, want %s %s %s", c.action, c.resource, found, c.operator, c.key, c.value)
		}
	}
}

func TestTheFunctionsSettingsAreKnownAndRight(t *testing.T) {
	tpl := readTemplate(t)
	known := connect.Known(connect.Groups())
	for _, i := range lambda.Settings() {
		known = append(known, i.Env)
	}
	for _, function := range []string{"TickFunction", "InterruptionsFunction"} {
		r := tpl.Resources[function]
		variables := r.Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
		if len(variables) < 15 {
			t.Errorf("%s has only %v", function, variables)
		}
		for name := range variables {
			if !slices.Contains(known, name) && name != connect.SettingsVar {
				t.Errorf("%s sets %s, which nobody reads", function, name)
			}
		}
		lookup := func(name string) (string, bool) {
			v, ok := variables[name]
			return resolve(v), ok
		}
		if _, err := connect.Parse(lookup); err != nil {
			t.Errorf("%s would not start: %v", function, err)
		}
		c, err := lambda.ConfigFromEnv(lookup)
		if err != nil || !strings.EqualFold(string(c.Function)+"Function", function) {
			t.Errorf("%s is for %s, %v", function, c.Function, err)
		}
	}
	if tick := tpl.Resources["TickFunction"].Properties; tick["Timeout"] != 900.0 {
		t.Errorf("the tick has timeout %v", tick["Timeout"])
	}
	if i := tpl.Resources["TickInvocations"].Properties; i["MaximumRetryAttempts"] != 0.0 {
		t.Errorf("a failed tick is repeated: %v", i)
	}
	if i := tpl.Resources["InterruptionInvocations"].Properties; i["MaximumEventAgeInSeconds"] != 120.0 {
		t.Errorf("interruptions are kept for %v s", i["MaximumEventAgeInSeconds"])
	}
}

// TestFunctionsReserveNoConcurrency: an account has 1,000 concurrent executions, a young one 10, of which AWS lets none be reserved: the
// stack could not be created there. The record's lease keeps ticks apart.
func TestFunctionsReserveNoConcurrency(t *testing.T) {
	for name, r := range readTemplate(t).Resources {
		if v, ok := r.Properties["ReservedConcurrentExecutions"]; ok {
			t.Errorf("%s reserves %v", name, v)
		}
	}
}

// TestFunctionsCanBeGivenEverySetting: by a variable of the environment, or by the parameter Settings, unless there is a reason why a
// function can't use it. A new setting is among them without a change of the template.
func TestFunctionsCanBeGivenEverySetting(t *testing.T) {
	tpl := readTemplate(t)
	var own []string
	for _, i := range lambda.Settings() {
		own = append(own, i.Env)
	}
	all := append(connect.Known(connect.Groups()), own...)
	reached, excluded := 0, 0
	for _, function := range []string{"TickFunction", "InterruptionsFunction"} {
		variables := tpl.Resources[function].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
		if variables[connect.SettingsVar] == nil {
			t.Fatalf("%s has no %s", function, connect.SettingsVar)
		}
		for _, name := range all {
			if _, ok := variables[name]; ok {
				reached++
				continue
			}
			document, err := json.Marshal(map[string]string{name: "some value"})
			if err != nil {
				t.Fatal(err)
			}
			lookup, err := connect.FunctionLookup(t.Context(), func(n string) (string, bool) {
				if n == connect.SettingsVar {
					return string(document), true
				}
				v, ok := variables[n]
				return resolve(v), ok
			}, own...)
			got, _ := lookup(name)
			switch why := connect.NotForFunctions(name); {
			case why != "" && err == nil:
				t.Errorf("%s is taken, although %s", name, why)
			case why != "":
				excluded++
			case err != nil || got != "some value":
				t.Errorf("%s does not reach %s: %v", name, function, err)
			default:
				reached++
			}
		}
	}
	t.Logf("%d settings of each function, of which %d can't be used", len(all), excluded/2)
	if reached+excluded != 2*len(all) || excluded > 2*8 {
		t.Errorf("%d reached and %d excluded of %d", reached, excluded, 2*len(all))
	}
}

// TestSettingsFitTheFunctionsEnvironment: 4 KB for names and values, and 4,096 bytes for a parameter.
func TestSettingsFitTheFunctionsEnvironment(t *testing.T) {
	tpl := readTemplate(t)
	text, err := os.ReadFile(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	var parameters struct {
		Parameters map[string]struct{ MaxLength int }
	}
	if err := yaml.Unmarshal(text, &parameters); err != nil {
		t.Fatal(err)
	}
	most := parameters.Parameters["Settings"].MaxLength
	if n := len(parameters.Parameters); n > 200 {
		t.Errorf("%d parameters, 200 are allowed", n)
	}
	size := 0
	for name, v := range tpl.Resources["InterruptionsFunction"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any) {
		value := len(resolve(v))
		switch name {
		case connect.SettingsVar:
			value = most
		case "SUBNET_IDS":
			value = 6 * 25 // of six zones
		case "INSTANCE_TYPES":
			value = 20 * 14
		case "KUBE_API_URL", "K3S_URL", "PROMETHEUS_URL":
			value = 100
		}
		size += len(name) + value
	}
	t.Logf("%d of 4,096 bytes, %d of them for Settings", size, most)
	if most < 2000 || size > 4096 {
		t.Errorf("%d of 4,096 bytes, %d of them for Settings", size, most)
	}
}

func TestTheTablesExpireTheirItemsAndOutliveTheStack(t *testing.T) {
	tpl := readTemplate(t)
	for _, name := range []string{"StateTable", "LogsTable"} {
		r := tpl.Resources[name]
		if got := fmt.Sprint(r.Properties["TimeToLiveSpecification"]); got != "map[AttributeName:expiresEpoch Enabled:true]" {
			t.Errorf("%s: %s", name, got)
		}
		if r.DeletionPolicy != "Retain" || r.UpdateReplacePolicy != "Retain" {
			t.Errorf("%s goes with the stack: its record says what runs", name)
		}
	}
}

func TestQueuesTakeEventsOfTheStacksRulesOnly(t *testing.T) {
	tpl := readTemplate(t)
	for name, queue := range map[string]string{"InterruptionsFromEvents": "Interruptions.Arn", "DeadLettersFromEvents": "DeadLetters.Arn"} {
		list := statements(t, tpl.Resources[name].Properties)
		if len(list) != 1 || !slices.Equal(texts(list[0].Action), []string{"sqs:SendMessage"}) || !slices.Equal(texts(list[0].Resource), []string{queue}) {
			t.Fatalf("%s: %+v", name, list)
		}
		from := texts(list[0].Condition["ArnEquals"]["aws:SourceArn"])
		for rule, r := range tpl.Resources {
			if r.Type == "AWS::Events::Rule" && rule != "EveryMinute" && !slices.Contains(from, rule+".Arn") {
				t.Errorf("%s refuses events of %s", name, rule)
			}
		}
	}
}

func TestEveryAlarmSaysWhatToDoAndGoesToTheTopic(t *testing.T) {
	n := 0
	for name, r := range readTemplate(t).Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		n++
		if d, _ := r.Properties["AlarmDescription"].(string); len(d) < 40 || !strings.Contains(fmt.Sprint(r.Properties["AlarmActions"]), "AlarmTopicArn") {
			t.Errorf("%s: %v", name, r.Properties)
		}
	}
	if n < 6 {
		t.Errorf("%d alarms", n)
	}
}

// resolve puts examples of the parameters into a value of the template.
func resolve(v any) string {
	parts := texts(v)
	if len(parts) == 0 {
		return fmt.Sprint(v)
	}
	out := parts[len(parts)-1] // of a Join the list
	for name, value := range map[string]string{
		"ClusterName": "prod", "StateTable": "muster-prod-state", "LogsTable": "muster-prod-logs", "EventLogDays": "30", "LaunchTemplateId": "lt-0a1b2c3d",
		"LaunchTemplateVersion": "7", "WorkerSubnetIds": "subnet-0a,subnet-0b", "InstanceTypes": "t3.large", "Spot": "true", "Prices": "aws", "MinWorkers": "2", "MaxWorkers": "10",
		"K3sUrl": "https://10.0.0.10:6443", "KubeApiUrl": "https://10.0.0.10:6443", "PrometheusUrl": "http://10.0.0.11:9090", "ReferencePath": "/muster",
	} {
		if out == name {
			return value
		}
		out = strings.ReplaceAll(out, "${"+name+"}", value)
	}
	return out
}

func TestTheLogsFiltersNameRealReasons(t *testing.T) {
	tpl := readTemplate(t)
	for name, reasons := range map[string][]nodes.Reason{
		"BlindTicks": {nodes.ReasonFleetUnknown, nodes.ReasonMetricsMissing}, "PodsThatNeverFit": {nodes.ReasonNeverFit},
	} {
		pattern, _ := tpl.Resources[name].Properties["FilterPattern"].(string)
		for _, r := range reasons {
			if !strings.Contains(pattern, fmt.Sprintf(`"%s: %s*"`, nodes.Noop, r)) {
				t.Errorf("%s does not look for %s: %s", name, r, pattern)
			}
		}
	}
}

// TestAPauseIsCountedWhateverElseIsInTheWay: a pause that is forgotten while the metrics are away must be told of as well.
func TestAPauseIsCountedWhateverElseIsInTheWay(t *testing.T) {
	pattern, _ := readTemplate(t).Resources["PausedTicks"].Properties["FilterPattern"].(string)
	_, text, _ := strings.Cut(pattern, `$.message = "*`)
	text, _, _ = strings.Cut(text, `*"`)
	r := nodes.NewRecord("")
	r.PausedSinceEpoch = 1_730_000_000
	for _, o := range []nodes.Observation{{FleetKnown: true}, {FleetWhy: "throttled"}} {
		p := nodes.DefaultPolicy()
		p.MinWorkers = 0
		d := nodes.Decide(p, o, r, time.Unix(1_730_000_100, 0))
		if text == "" || !strings.Contains(fmt.Sprintf("%s: %s %s", d.Action, d.Reason, d.Detail), text) {
			t.Errorf("%s does not find %s: %s %s", pattern, d.Action, d.Reason, d.Detail)
		}
	}
}

// TestTheRulesMatchTheEventsThatAreUnderstood gives every rule's pattern to the code that reads events.
func TestTheRulesMatchTheEventsThatAreUnderstood(t *testing.T) {
	tpl := readTemplate(t)
	kinds := map[nodes.InterruptionKind]bool{}
	for name, r := range tpl.Resources {
		pattern, ok := r.Properties["EventPattern"].(map[string]any)
		if r.Type != "AWS::Events::Rule" || !ok {
			continue
		}
		detail := map[string]any{"instance-id": "i-0123456789abcdef0", "state": "terminated", "startTime": "Sat, 05 Jun 2021 15:10:09 GMT",
			"affectedEntities": []any{map[string]any{"entityValue": "i-0123456789abcdef0"}}}
		if d, ok := pattern["detail"].(map[string]any); ok {
			for k, v := range d {
				detail[k] = texts(v)[0]
			}
		}
		message, err := json.Marshal(map[string]any{"id": "e", "time": "2026-11-21T10:00:00Z", "source": texts(pattern["source"])[0],
			"detail-type": texts(pattern["detail-type"])[0], "detail": detail})
		if err != nil {
			t.Fatal(err)
		}
		got, err := event.Parse(message)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kinds[got[0].Kind] = true
	}
	if len(kinds) != 4 {
		t.Errorf("the rules bring %v", kinds)
	}
}

func TestTheTemplatePassesItsLinter(t *testing.T) {
	moto := component.Moto()
	python := filepath.Join(moto.Fetch(t), "python", "bin", "python")
	cmd := exec.Command(python, "-c", "import sys; from cfnlint.runner import main; sys.exit(main())", "--regions", "eu-central-1", "us-east-1", "--", templateFile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("cfn-lint: %v\n%s", err, out)
	}
}

// ---- Kubernetes

// clusterRole compares what was asked of the Kubernetes API with the role.
func clusterRole(t *testing.T, p *plane) {
	b, err := os.ReadFile("kubernetes/nodes/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var permits []string
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						resource, sub, _ := strings.Cut(resource, "/")
						permits = append(permits, kube.Permission{Verb: verb, Group: group, Resource: resource, Subresource: sub}.String())
					}
				}
			}
		}
	}
	// The simulated server is older than EvictionRequests and is asked for none. nodes/kube's evictionrequest.go makes these calls.
	// Nor has it events and pools: nodes/kube's TestReports has the requests about these. The plane here packs no pods, so it heeds no
	// capacity buffers: nodes/kube's TestBuffers has the requests about those.
	const responding = ".lifecycle.k8s.io"
	var buffers []string
	for _, p := range kube.BufferPermissions() {
		buffers = append(buffers, p.String())
	}
	permits = slices.DeleteFunc(permits, func(p string) bool {
		if slices.Contains(buffers, p) {
			return true
		}
		shown := strings.HasSuffix(p, " events") || strings.HasSuffix(p, " pools.muster.dev")
		return shown || slices.Contains([]string{"create evictionrequests" + responding, "get evictionrequests" + responding, "delete evictionrequests" + responding, "list evictions" + responding}, p)
	})
	slices.Sort(permits)
	used := p.verb.of("tick", "interruptions", "following", "watching")
	if !slices.Equal(used, permits) {
		t.Errorf("asked for %v\npermitted %v", used, permits)
	}
	// Every authenticated client may ask what it may do: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#discovery-roles
	for _, verb := range p.verb.of("doctor") {
		if !slices.Contains(permits, verb) && verb != "create selfsubjectaccessreviews.authorization.k8s.io" {
			t.Errorf("doctor: %s is asked for and not permitted", verb)
		}
	}
}
