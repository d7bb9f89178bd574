package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resource is a resource of the template.
type resource struct {
	Type                string    `yaml:"Type"`
	Condition           string    `yaml:"Condition"`
	DependsOn           []string  `yaml:"DependsOn"`
	DeletionPolicy      string    `yaml:"DeletionPolicy"`
	UpdateReplacePolicy string    `yaml:"UpdateReplacePolicy"`
	Properties          yaml.Node `yaml:"Properties"`

	name string
}

// types are what resources are in Terraform.
var types = map[string]string{
	"AWS::DynamoDB::Table":           "aws_dynamodb_table",
	"AWS::IAM::ManagedPolicy":        "aws_iam_policy",
	"AWS::IAM::Role":                 "aws_iam_role",
	"AWS::Logs::LogGroup":            "aws_cloudwatch_log_group",
	"AWS::Logs::MetricFilter":        "aws_cloudwatch_log_metric_filter",
	"AWS::Lambda::Function":          "aws_lambda_function",
	"AWS::Lambda::EventInvokeConfig": "aws_lambda_function_event_invoke_config",
	"AWS::Lambda::Permission":        "aws_lambda_permission",
	"AWS::Events::Rule":              "aws_cloudwatch_event_rule",
	"AWS::SQS::Queue":                "aws_sqs_queue",
	"AWS::SQS::QueuePolicy":          "aws_sqs_queue_policy",
	"AWS::CloudWatch::Alarm":         "aws_cloudwatch_metric_alarm",
}

// translate translates the properties of a resource, by its type.
func (w *writer) translate() {
	switch w.r.Type {
	case "AWS::DynamoDB::Table":
		table(w)
	case "AWS::IAM::ManagedPolicy":
		managedPolicy(w)
	case "AWS::IAM::Role":
		role(w)
	case "AWS::Logs::LogGroup":
		logGroup(w)
	case "AWS::Logs::MetricFilter":
		metricFilter(w)
	case "AWS::Lambda::Function":
		lambdaFunction(w)
	case "AWS::Lambda::EventInvokeConfig":
		invocations(w)
	case "AWS::Lambda::Permission":
		permission(w)
	case "AWS::Events::Rule":
		rule(w)
	case "AWS::SQS::Queue":
		queue(w)
	case "AWS::SQS::QueuePolicy":
		queuePolicy(w)
	case "AWS::CloudWatch::Alarm":
		alarm(w)
	}
}

// address returns where the resource is in the module.
func (r resource) address() string {
	address := types[r.Type] + "." + snake(r.name)
	if r.Condition != "" {
		address += "[0]"
	}
	return address
}

// writer writes one resource, and those that Terraform has beside it.
type writer struct {
	body
	t      *translation
	r      resource
	left   map[string]*yaml.Node // properties that are not translated yet
	beside strings.Builder
}

// all returns the resources.
func (t *translation) all(resources []resource) string {
	var out strings.Builder
	for _, r := range resources {
		kind, ok := types[r.Type]
		if !ok {
			t.fail("there is no translation for %s, which is a %s", r.name, r.Type)
			continue
		}
		w := &writer{t: t, r: r, left: map[string]*yaml.Node{}}
		for name, value := range entries(&r.Properties) {
			w.left[name] = value
		}
		w.count(&w.body)
		w.translate()
		if value, ok := w.left["Tags"]; ok {
			delete(w.left, "Tags")
			w.attribute("tags", t.pairs(value, "Key"))
		}
		for name := range w.left {
			t.fail("there is no translation for %s.%s", r.name, name)
		}
		w.lifecycle()
		fmt.Fprintf(&out, "\nresource %q %q {\n%s}\n%s", kind, snake(r.name), w.text.String(), w.beside.String())
	}
	return out.String()
}

// lifecycle translates what isn't a property.
func (w *writer) lifecycle() {
	if w.r.DeletionPolicy != w.r.UpdateReplacePolicy {
		w.t.fail("%s is kept by one of DeletionPolicy and UpdateReplacePolicy only", w.r.name)
	}
	if w.r.DeletionPolicy == "Retain" {
		w.block("lifecycle", func(b *body) { b.attribute("prevent_destroy", "true") })
	}
	var on []string
	for _, name := range w.r.DependsOn {
		on = append(on, strings.TrimSuffix(w.t.resources[name].address(), "[0]"))
	}
	if on != nil {
		w.attribute("depends_on", "["+strings.Join(on, ", ")+"]")
	}
}

// count makes a resource conditional.
func (w *writer) count(b *body) {
	if w.r.Condition != "" {
		b.attribute("count", fmt.Sprintf("local.%s ? 1 : 0", snake(w.r.Condition)))
	}
}

// take returns a property, which is then translated; nil if there is none.
func (w *writer) take(property string) *yaml.Node {
	n := w.left[property]
	delete(w.left, property)
	return n
}

// same translates properties into arguments: property, argument, and so on.
func (w *writer) same(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if n := w.take(pairs[i]); n != nil {
			w.attribute(pairs[i+1], w.t.expression(n))
		}
	}
}

// asJSON translates a property into an argument that is JSON.
func (w *writer) asJSON(property, argument string) {
	if n := w.take(property); n != nil {
		w.attribute(argument, "jsonencode("+w.t.expression(n)+")")
	}
}

// inBlock translates the entries of a property into those of a block.
func (w *writer) inBlock(property, block string, pairs ...string) {
	if n := w.take(property); n != nil {
		w.block(block, func(b *body) { w.t.inside(b, n, pairs...) })
	}
}

// inside translates the entries of a mapping into arguments, all of them.
func (t *translation) inside(b *body, n *yaml.Node, pairs ...string) {
	left := map[string]*yaml.Node{}
	for name, value := range entries(n) {
		left[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		if value, ok := left[pairs[i]]; ok {
			b.attribute(pairs[i+1], t.expression(value))
			delete(left, pairs[i])
		}
	}
	for name := range left {
		t.fail("line %d: there is no translation for %s", n.Line, name)
	}
}

// pairs translates a list of mappings with a name and Value into a mapping.
func (t *translation) pairs(n *yaml.Node, name string) string {
	b := body{}
	for _, one := range n.Content {
		var key string
		var value *yaml.Node
		for m, v := range entries(one) {
			switch m {
			case name:
				key = v.Value
			case "Value":
				value = v
			default:
				t.fail("line %d: there is no translation for %s", n.Line, m)
			}
		}
		if value == nil {
			return t.fail("line %d: an entry has no Value", n.Line)
		}
		b.attribute(quoted(key), t.expression(value))
	}
	return "{\n" + b.text.String() + "}"
}

func table(w *writer) {
	w.same("TableName", "name", "BillingMode", "billing_mode")
	for _, key := range w.take("KeySchema").Content {
		var k struct {
			AttributeName string `yaml:"AttributeName"`
			KeyType       string `yaml:"KeyType"`
		}
		if err := key.Decode(&k); err != nil {
			w.t.fail("%s: %v", w.r.name, err)
		}
		w.attribute(map[string]string{"HASH": "hash_key", "RANGE": "range_key"}[k.KeyType], quoted(k.AttributeName))
	}
	for _, attribute := range w.take("AttributeDefinitions").Content {
		w.block("attribute", func(b *body) { w.t.inside(b, attribute, "AttributeName", "name", "AttributeType", "type") })
	}
	w.inBlock("TimeToLiveSpecification", "ttl", "AttributeName", "attribute_name", "Enabled", "enabled")
	w.inBlock("PointInTimeRecoverySpecification", "point_in_time_recovery", "PointInTimeRecoveryEnabled", "enabled")
	w.inBlock("SSESpecification", "server_side_encryption", "SSEEnabled", "enabled")
}

func managedPolicy(w *writer) {
	w.same("Description", "description")
	w.asJSON("PolicyDocument", "policy")
}

// role writes the role, and its policies beside it.
func role(w *writer) {
	w.asJSON("AssumeRolePolicyDocument", "assume_role_policy")
	name := types[w.r.Type] + "." + snake(w.r.name)
	if w.r.Condition != "" {
		name += "[0]"
	}
	for _, policy := range w.take("ManagedPolicyArns").Content {
		b := body{}
		w.count(&b)
		b.attribute("role", name+".name")
		b.attribute("policy_arn", w.t.expression(policy))
		fmt.Fprintf(&w.beside, "\nresource \"aws_iam_role_policy_attachment\" %q {\n%s}\n", snake(w.r.name)+"_"+snake(policy.Value), b.text.String())
	}
	for _, policy := range w.take("Policies").Content {
		var p struct {
			PolicyName     string    `yaml:"PolicyName"`
			PolicyDocument yaml.Node `yaml:"PolicyDocument"`
		}
		if err := policy.Decode(&p); err != nil {
			w.t.fail("%s: %v", w.r.name, err)
		}
		b := body{}
		w.count(&b)
		b.attribute("name", quoted(p.PolicyName))
		b.attribute("role", name+".name")
		b.attribute("policy", "jsonencode("+w.t.expression(&p.PolicyDocument)+")")
		fmt.Fprintf(&w.beside, "\nresource \"aws_iam_role_policy\" %q {\n%s}\n", snake(w.r.name)+"_"+snake(p.PolicyName), b.text.String())
	}
}

func logGroup(w *writer) { w.same("LogGroupName", "name", "RetentionInDays", "retention_in_days") }

func metricFilter(w *writer) {
	w.attribute("name", quoted(strings.ReplaceAll(snake(w.r.name), "_", "-"))) // CloudFormation makes one
	w.same("LogGroupName", "log_group_name", "FilterPattern", "pattern")
	for _, m := range w.take("MetricTransformations").Content {
		w.block("metric_transformation", func(b *body) {
			w.t.inside(b, m, "MetricNamespace", "namespace", "MetricName", "name", "MetricValue", "value", "DefaultValue", "default_value")
		})
	}
}

func lambdaFunction(w *writer) {
	w.same("FunctionName", "function_name", "Description", "description", "Runtime", "runtime", "Handler", "handler", "Architectures", "architectures",
		"Role", "role", "MemorySize", "memory_size", "Timeout", "timeout")
	w.t.inside(&w.body, w.take("Code"), "S3Bucket", "s3_bucket", "S3Key", "s3_key")
	w.inBlock("VpcConfig", "vpc_config", "SubnetIds", "subnet_ids", "SecurityGroupIds", "security_group_ids")
	w.inBlock("Environment", "environment", "Variables", "variables")
}

func invocations(w *writer) {
	w.same("FunctionName", "function_name", "Qualifier", "qualifier", "MaximumRetryAttempts", "maximum_retry_attempts",
		"MaximumEventAgeInSeconds", "maximum_event_age_in_seconds")
	destinations := w.take("DestinationConfig")
	if destinations == nil {
		return
	}
	w.block("destination_config", func(b *body) {
		for name, value := range entries(destinations) {
			if name != "OnFailure" {
				w.t.fail("%s: there is no translation for %s", w.r.name, name)
			}
			b.block("on_failure", func(b *body) { w.t.inside(b, value, "Destination", "destination") })
		}
	})
}

func permission(w *writer) {
	w.same("FunctionName", "function_name", "Action", "action", "Principal", "principal", "SourceArn", "source_arn")
}

// rule writes a rule, and its targets beside it. A target that depends on a condition differs by its ARN alone.
func rule(w *writer) {
	w.same("Name", "name", "Description", "description", "ScheduleExpression", "schedule_expression")
	w.asJSON("EventPattern", "event_pattern")
	for _, target := range w.take("Targets").Content {
		one := target
		var arn string
		if target.Tag == "!If" {
			one = target.Content[1]
			a, b := entry(target.Content[1], "Arn"), entry(target.Content[2], "Arn")
			arn = fmt.Sprintf("local.%s ? %s : %s", snake(target.Content[0].Value), w.t.expression(a), w.t.expression(b))
			if w.target(target.Content[1], arn) != w.target(target.Content[2], arn) {
				w.t.fail("%s: the targets differ by more than Arn", w.r.name)
			}
		} else {
			arn = w.t.expression(entry(target, "Arn"))
		}
		fmt.Fprintf(&w.beside, "\nresource \"aws_cloudwatch_event_target\" %q {\n%s}\n", snake(w.r.name), w.target(one, arn))
	}
}

// target returns the body of a target of a rule.
func (w *writer) target(n *yaml.Node, arn string) string {
	b := body{}
	w.count(&b)
	b.attribute("rule", w.r.address()+".name")
	b.attribute("arn", arn)
	for name, value := range entries(n) {
		switch name {
		case "Arn":
		case "Id":
			b.attribute("target_id", w.t.expression(value))
		case "RetryPolicy":
			b.block("retry_policy", func(b *body) {
				w.t.inside(b, value, "MaximumRetryAttempts", "maximum_retry_attempts", "MaximumEventAgeInSeconds", "maximum_event_age_in_seconds")
			})
		case "DeadLetterConfig":
			b.block("dead_letter_config", func(b *body) { w.t.inside(b, value, "Arn", "arn") })
		default:
			w.t.fail("%s: there is no translation for a target's %s", w.r.name, name)
		}
	}
	return b.text.String()
}

// entry returns an entry of a mapping; an empty node if there is none, which can't be translated.
func entry(n *yaml.Node, name string) *yaml.Node {
	for m, value := range entries(n) {
		if m == name {
			return value
		}
	}
	return &yaml.Node{}
}

func queue(w *writer) {
	w.same("QueueName", "name", "MessageRetentionPeriod", "message_retention_seconds", "ReceiveMessageWaitTimeSeconds", "receive_wait_time_seconds",
		"SqsManagedSseEnabled", "sqs_managed_sse_enabled")
	w.asJSON("RedrivePolicy", "redrive_policy")
}

func queuePolicy(w *writer) {
	queues := w.take("Queues").Content
	if len(queues) != 1 {
		w.t.fail("%s is for %d queues, and can be translated for one", w.r.name, len(queues))
		return
	}
	w.attribute("queue_url", w.t.expression(queues[0]))
	w.asJSON("PolicyDocument", "policy")
}

func alarm(w *writer) {
	w.same("AlarmName", "alarm_name", "AlarmDescription", "alarm_description", "Namespace", "namespace", "MetricName", "metric_name",
		"Statistic", "statistic", "Period", "period", "EvaluationPeriods", "evaluation_periods", "DatapointsToAlarm", "datapoints_to_alarm",
		"Threshold", "threshold", "ComparisonOperator", "comparison_operator", "TreatMissingData", "treat_missing_data", "AlarmActions", "alarm_actions")
	if n := w.take("Dimensions"); n != nil {
		w.attribute("dimensions", w.t.pairs(n, "Name"))
	}
}
