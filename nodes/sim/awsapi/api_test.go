package awsapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

func region(t *testing.T) (*awsapi.API, func(target, body string) (int, string)) {
	t.Helper()
	return regionOf(t, awsapi.Options{Foreign: []nodes.Instance{{ID: "i-fab", State: nodes.StateRunning}}})
}

func regionOf(t *testing.T, o awsapi.Options) (*awsapi.API, func(target, body string) (int, string)) {
	t.Helper()
	api := awsapi.New(sim.New(sim.Options{Policy: nodes.DefaultPolicy()}), o)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, func(target, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if target != "" {
			req.Header.Set("X-Amz-Target", target)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
}

// What the adapter never sends, or sends only when something is wrong.
func TestWrongRequestsGetTheErrorsThatTheServicesGive(t *testing.T) {
	api, post := region(t)
	launch := "Action=RunInstances&MinCount=1&MaxCount=1&SubnetId=subnet-a&ImageId=ami-1&InstanceType=m&"
	for _, c := range []struct {
		target, body string
		status       int
		code         string
	}{
		{"", "Action=CreateVpc", 400, "InvalidAction"},
		{"", "%zz", 400, "invalid URL escape"},
		{"AmazonSSM.GetParameter", "{", 400, "reading a request"},
		{"AmazonSSM.GetParameter", `{"Name":"x"}`, 400, "ParameterNotFound"},
		{"secretsmanager.GetSecretValue", `{"SecretId":"x"}`, 400, "ResourceNotFoundException"},
		{"AmazonSQS.ReceiveMessage", `{"QueueUrl":"q","WaitTimeSeconds":21}`, 400, "InvalidParameterValue"},
		{"DynamoDB_20120810.GetItem", `{}`, 400, "InvalidAction"},
		{"", "Action=DescribeInstances&MaxResults=3", 400, "InvalidParameterValue"},
		{"", "Action=DescribeInstances&NextToken=x", 400, "InvalidNextToken"},
		{"", "Action=DescribeInstances&InstanceId.1=i-001&InstanceId.2=i-fff", 400, "i-fff"},
		{"", "Action=DescribeInstanceStatus&InstanceId.1=i-001&InstanceId.2=i-fff", 400, "i-fff"},
		{"", "Action=DescribeInstanceStatus&InstanceId.1=i-001&MaxResults=5", 400, "InvalidParameterCombination"},
		{"", "Action=TerminateInstances&InstanceId.1=i-fff", 400, "InvalidInstanceID.NotFound"},
		{"", "Action=TerminateInstances&InstanceId.1=i-001&DryRun=true", 412, "DryRunOperation"},
		{"", "Action=GetConsoleOutput&InstanceId=i-fff", 400, "InvalidInstanceID.NotFound"},
		{"", strings.Replace(launch, "MaxCount=1", "MaxCount=2", 1), 400, "InvalidParameterCombination"},
		{"", strings.Replace(launch, "subnet-a", "subnet-z", 1), 400, "InvalidSubnetID.NotFound"},
		{"", strings.Replace(launch, "SubnetId", "x", 1), 400, "MissingInput"},
		{"", strings.Replace(launch, "ImageId", "x", 1), 400, "MissingParameter"},
		{"", strings.Replace(launch, "InstanceType", "x", 1), 400, "MissingParameter"},
		{"", launch + "ClientToken=" + strings.Repeat("x", 65), 400, "InvalidParameterValue"},
		{"", launch + "UserData=***", 400, "InvalidParameterValue"},
		{"", launch + "InstanceMarketOptions.MarketType=block", 400, "InvalidParameterValue"},
	} {
		if status, body := post(c.target, c.body); status != c.status || !strings.Contains(body, c.code) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.target, c.body, status, body, c.status, c.code)
		}
	}
	for _, call := range api.Calls() {
		if call.Code == "" {
			t.Errorf("%s is recorded as a success", call.Permission())
		}
	}
	if status, body := post("", launch+"ClientToken=t"); status != 200 || !strings.Contains(body, "<instanceId>i-002</instanceId>") {
		t.Errorf("%d %s", status, body)
	}
}

func TestFiltersSelect(t *testing.T) {
	_, post := region(t)
	for filter, want := range map[string]string{
		"": "i-001 i-fab", "Filter.1.Name=instance-id&Filter.1.Value.1=i-fab&Filter.1.Value.2=i-000": "i-fab",
		"Filter.1.Name=tag:muster.dev/cluster&Filter.1.Value.1=sim":                                                   "i-001",
		"Filter.1.Name=tag-key&Filter.1.Value.1=muster.dev/role":                                                      "i-001",
		"Filter.1.Name=availability-zone&Filter.1.Value.1=b":                                                          "",
		"Filter.1.Name=instance-state-name&Filter.1.Value.1=running&Filter.2.Name=instance-id&Filter.2.Value.1=i-001": "i-001",
	} {
		_, body := post("", "Action=DescribeInstances&"+filter)
		var got []string
		for _, id := range []string{"i-001", "i-fab"} {
			if strings.Contains(body, id) {
				got = append(got, id)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s gave %v", filter, got)
		}
	}
}
