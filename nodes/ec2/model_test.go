package ec2_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// sent is a request as AWS would get it.
type sent struct {
	Target string `json:"target"` // X-Amz-Target; "" of a query
	Body   string `json:"body"`
}

// recorder passes requests on and keeps them.
type recorder struct {
	next http.Handler

	mu   sync.Mutex
	seen []sent
}

func (p *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.seen = append(p.seen, sent{r.Header.Get("X-Amz-Target"), string(body)})
	p.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.next.ServeHTTP(w, r)
}

// judged is what the model says of a request.
type judged struct {
	Operation string   `json:"operation"`
	Problems  []string `json:"problems"`
}

// judge validates requests against botocore's model.
func judge(t *testing.T, requests []sent) []judged {
	t.Helper()
	text, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(component.Moto().Fetch(t), "python", "bin", "python")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "validate.py"))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var got []judged
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// everyCall makes every call that the adapter has, in each form that it has.
func everyCall(t *testing.T, r *region, p *recorder) {
	t.Helper()
	ctx := t.Context()
	byTemplate := config()
	byTemplate.Pools = []nodes.Pool{{Name: "batch", InstanceTypes: []string{"m5.large"}}}
	byImage := config()
	byImage.LaunchTemplate, byImage.LaunchTemplateVersion = "", ""
	byImage.AMI, byImage.SecurityGroups, byImage.InstanceProfile = "ami-0123456789abcdef0", []string{"sg-0123456789abcdef0"}, "workers"
	byImage.SubnetIDs = []string{"subnet-a", "subnet-b"}
	id := ""
	for i, c := range []ec2.Config{byTemplate, byImage} {
		cloud, queue := r.client(t, c)
		for _, m := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
			in, err := cloud.Launch(ctx, nodes.LaunchRequest{
				Token: fmt.Sprintf("token-%d-%s", i, m), Cluster: "prod", ActionID: "action", Template: c.Template(), TemplateHash: "0123456789abcdef",
				Offering: nodes.Offering{Zone: "a", Subnet: "subnet-a", Type: "m5.large", Market: m, Pool: "batch"},
			})
			if err != nil {
				t.Fatal(err)
			}
			id = in.ID
		}
		_, err := cloud.Subnets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.OnDemandPrices(ctx, []string{"m5.large", "t3.large"}); err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.SpotPrices(ctx, []string{"m5.large"}, []string{"a", "b"}); err != nil {
			t.Fatal(err)
		}
		cloud.Check(ctx) // of what it finds in this region nothing matters here
		_, err = cloud.Lookup(ctx, []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.Workers(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.Impaired(ctx, []string{id}); err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.Diagnose(ctx, id); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"ssm:/muster/user-data:1", "secretsmanager:muster/token#00000000-0000-4000-8000-000000000001"} {
			ref, err := ec2.ParseRef(text)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = cloud.Fetch(ctx, ref) // there is none; what was asked matters
		}
		there := map[string]string{"AWS_REGION": "x-1", "AWS_ENDPOINT_URL_SSM": r.url}
		for _, version := range []string{"", "7"} {
			ref := ec2.Ref{Service: "ssm", Name: "/muster/prod/settings", Version: version}
			_, _ = ec2.ReadParameter(ctx, func(env string) (string, bool) { v, ok := there[env]; return v, ok }, ref)
		}
		if err := cloud.Terminate(ctx, id); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			continue
		}
		polled, stop := context.WithCancel(ctx)
		r.api.Send(r.url+"/123456789012/muster", awsapi.Event(nodes.InterruptionEvent{ID: "e", Kind: nodes.Warning, InstanceID: id, At: r.w.Clock().Now()}))
		q := ec2.Queue{API: queue, URL: r.url + "/123456789012/muster", Wait: time.Second, Clock: r.w.Clock(), Handle: func(context.Context, nodes.InterruptionEvent) error {
			return nil
		}}
		go func() {
			for !p.has("DeleteMessage") && polled.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			stop()
		}()
		if err := q.Run(polled); err != nil {
			t.Fatal(err)
		}
		stop()
	}
}

func (p *recorder) has(target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.seen, func(s sent) bool { return strings.HasSuffix(s.Target, "."+target) })
}

// TestRequestsMatchAWSsModel validates every request that the adapter makes against the model from which AWS's own SDK for Python is made.
// The model is not that of the SDK that the adapter uses, so a parameter that is left out or misspelt shows.
func TestRequestsMatchAWSsModel(t *testing.T) {
	r := open(t)
	p := &recorder{next: r.api}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	r.url = server.URL
	t.Setenv("AWS_ACCESS_KEY_ID", "local") // for what makes its client itself
	t.Setenv("AWS_SECRET_ACCESS_KEY", "local")
	everyCall(t, r, p)

	validated := map[string]int{}
	for i, j := range judge(t, p.seen) {
		validated[j.Operation]++
		for _, problem := range j.Problems {
			t.Errorf("%s: %s\n%s", j.Operation, problem, p.seen[i].Body)
		}
	}
	for service, api := range map[string]reflect.Type{
		"ec2": reflect.TypeFor[ec2.EC2](), "ssm": reflect.TypeFor[ec2.Parameters](), "secretsmanager": reflect.TypeFor[ec2.Secrets](),
		"sts": reflect.TypeFor[ec2.Identity](), "sqs": reflect.TypeFor[ec2.SQS](), "pricing": reflect.TypeFor[ec2.Pricing](),
	} {
		for i := range api.NumMethod() {
			if name := service + ":" + api.Method(i).Name; validated[name] == 0 {
				t.Errorf("%s is among what the adapter needs, and no request of it was validated", name)
			}
		}
	}
	t.Logf("%d requests of %d operations: %v", len(p.seen), len(validated), validated)
}

// TestTheModelRejects: a validation that finds nothing in wrong requests would prove nothing.
func TestTheModelRejects(t *testing.T) {
	run := "Action=RunInstances&Version=2016-11-15&MinCount=1&MaxCount=1&InstanceType=m5.large"
	get := func(body string) sent { return sent{"AmazonSSM.GetParameter", body} }
	requests := []sent{
		{Body: run}, get(`{"Name":"/a","WithDecryption":true}`),
		{Body: run + "&InstanceTyp=x"},
		{Body: run + "&TagSpecification.1.ResourceTyp=instance"},
		{Body: "Action=RunInstances&Version=2016-11-15&MinCount=one&MaxCount=1"},
		{Body: "Action=RunInstances&Version=2016-11-15&MaxCount=1"},
		{Body: run + "&MetadataOptions.HttpTokens=" + url.QueryEscape("requird")},
		get(`{"Name":"/a","Decrypt":true}`), get(`{}`), get(`{"Name":7}`),
	}
	for i, j := range judge(t, requests) {
		if wrong := i >= 2; wrong != (len(j.Problems) > 0) {
			t.Errorf("%+v has the problems %q", requests[i], j.Problems)
		}
	}
}
