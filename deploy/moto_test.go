package deploy

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
)

// moto calls a server of the AWS APIs as their query protocol wants it. Signatures are not looked at there, but tell the service.
type moto struct{ url string }

func (m moto) do(t *testing.T, service, method, path, body string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, m.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20261121/eu-central-1/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %s, %v: %s", service, path, res.Status, err, out)
	}
	return out
}

func (m moto) query(t *testing.T, service, version, action string, params map[string]string) []byte {
	t.Helper()
	v := url.Values{"Action": {action}, "Version": {version}}
	for name, value := range params {
		v.Set(name, value)
	}
	return m.do(t, service, http.MethodPost, "/", v.Encode())
}

// stack creates the stack and returns its resources' states by type.
func (m moto) stack(t *testing.T, name string, parameters map[string]string) map[string][]string {
	t.Helper()
	body, err := os.ReadFile(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	const version = "2010-05-15"
	params := map[string]string{"StackName": name, "TemplateBody": string(body), "Capabilities.member.1": "CAPABILITY_IAM"}
	n := 0
	for key, value := range parameters {
		n++
		prefix := fmt.Sprint("Parameters.member.", n)
		params[prefix+".ParameterKey"], params[prefix+".ParameterValue"] = key, value
	}
	m.query(t, "cloudformation", version, "CreateStack", params)
	var out struct {
		Resources []struct {
			ResourceType   string
			ResourceStatus string
		} `xml:"DescribeStackResourcesResult>StackResources>member"`
	}
	if err := xml.Unmarshal(m.query(t, "cloudformation", version, "DescribeStackResources", map[string]string{"StackName": name}), &out); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, r := range out.Resources {
		got[r.ResourceType] = append(got[r.ResourceType], r.ResourceStatus)
	}
	return got
}

// TestTheStackComesUpAndItsTablesServe creates the stack as functions and as for a daemon, on moto, and lets the store work on its
// tables. Of what moto has no CloudFormation support for (alarms, queue policies, invocation settings, the tables' time to live) the
// other tests read what the template says.
func TestTheStackComesUpAndItsTablesServe(t *testing.T) {
	m := moto{"http://" + component.Moto().Start(t).Addr}
	m.do(t, "s3", http.MethodPut, "/code-bucket", "<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>")
	m.do(t, "s3", http.MethodPut, "/code-bucket/muster.zip", "PK\x05\x06"+strings.Repeat("\x00", 18))
	common := map[string]string{
		"LaunchTemplateId": "lt-0a1b", "LaunchTemplateVersion": "7", "NodeRoleArn": "arn:aws:iam::123456789012:role/nodes",
		"WorkerSubnetIds": "subnet-0a,subnet-0b",
		// With these every optional statement is there: moto leaves a null in a list where CloudFormation leaves AWS::NoValue out.
		"VolumeKeyArn": "arn:aws:kms:eu-central-1:123456789012:key/k", "SecretArns": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:a", "Prices": "aws",
	}
	for _, c := range []struct {
		as     string
		extra  map[string]string
		want   map[string]int
		absent []string
	}{
		{"lambda", map[string]string{
			"CodeBucket": "code-bucket", "CodeKey": "muster.zip", "FunctionSubnetIds": "subnet-0a", "FunctionSecurityGroupIds": "sg-0a",
			"KubeApiUrl": "https://10.0.0.10:6443", "PrometheusUrl": "http://10.0.0.10:9090", "K3sUrl": "https://10.0.0.10:6443",
			"AlarmTopicArn": "arn:aws:sns:eu-central-1:123456789012:alarms",
		}, map[string]int{"AWS::DynamoDB::Table": 2, "AWS::Lambda::Function": 2, "AWS::Lambda::Permission": 5, "AWS::Events::Rule": 5, "AWS::SQS::Queue": 1,
			"AWS::IAM::Role": 2, "AWS::IAM::ManagedPolicy": 4, "AWS::Logs::LogGroup": 2}, nil},
		{"daemon", nil, map[string]int{"AWS::DynamoDB::Table": 2, "AWS::Events::Rule": 4, "AWS::SQS::Queue": 2, "AWS::IAM::ManagedPolicy": 4},
			[]string{"AWS::Lambda::Function", "AWS::IAM::Role", "AWS::Lambda::Permission"}},
	} {
		t.Run(c.as, func(t *testing.T) {
			parameters := map[string]string{"ClusterName": "c-" + c.as, "RunAs": c.as}
			for _, more := range []map[string]string{common, c.extra} {
				for k, v := range more {
					parameters[k] = v
				}
			}
			got := m.stack(t, "muster-"+c.as, parameters)
			for kind, n := range c.want {
				if len(got[kind]) != n || slices.ContainsFunc(got[kind], func(s string) bool { return s != "CREATE_COMPLETE" }) {
					t.Errorf("%s: %v, want %d", kind, got[kind], n)
				}
			}
			for _, kind := range c.absent {
				if len(got[kind]) > 0 {
					t.Errorf("%s: %v", kind, got[kind])
				}
			}
			serve(t, m, "muster-c-"+c.as)
		})
	}
}

// serve lets the store and the event log work on the stack's tables, and doctor look at them.
func serve(t *testing.T, m moto, prefix string) {
	t.Helper()
	d, err := dynamo.New(aws.Config{Region: "eu-central-1", BaseEndpoint: &m.url, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")},
		dynamo.Config{StateTable: prefix + "-state", LogsTable: prefix + "-logs", KeepDays: 3650}, func(*dynamodb.Options) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Check(t.Context()) {
		if !c.OK && !strings.HasSuffix(c.Name, "time to live") {
			t.Errorf("doctor: %+v", c)
		}
	}
	if _, err := d.Store().Load(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.EventLog().Append(t.Context(), nodes.Event{Tick: "t", Kind: "k"}); err != nil {
		t.Error(err)
	}
}
