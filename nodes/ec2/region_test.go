package ec2_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// region is a simulated region behind its wire protocols, and a Cloud that talks to it.
type region struct {
	w     *sim.Simulator
	api   *awsapi.API
	url   string
	cloud *ec2.Cloud
	sqs   *sqs.Client
}

func config() ec2.Config {
	return ec2.Config{
		Cluster: "prod", LaunchTemplate: "lt-0a1b", LaunchTemplateVersion: "7", UserData: ec2.UserDataK3s,
		Join:          ec2.Join{Server: "https://10.0.0.10:6443", TokenRef: "ssm:/muster/prod/agent-token"},
		InstanceTypes: []string{"t3.large", "m5.large"}, Spot: true,
	}
}

func policy() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster = "prod"
	return p
}

type setup struct {
	sim    sim.Options
	api    awsapi.Options
	config ec2.Config
}

// open starts a region. Clients are the SDK's own; only their pauses between attempts are short.
func open(t *testing.T, change ...func(*setup)) *region {
	t.Helper()
	s := setup{sim: sim.Options{Policy: policy(), Visible: 5 * time.Second, Boot: time.Minute}, config: config()}
	for _, f := range change {
		f(&s)
	}
	r := &region{w: sim.New(s.sim)}
	r.api = awsapi.New(r.w, s.api)
	server := httptest.NewServer(r.api)
	t.Cleanup(server.Close)
	r.url = server.URL
	r.cloud, r.sqs = r.client(t, s.config)
	return r
}

func (r *region) client(t *testing.T, c ec2.Config) (*ec2.Cloud, *sqs.Client) {
	t.Helper()
	cfg := aws.Config{
		Region: "local", BaseEndpoint: &r.url, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
		},
	}
	cloud, err := ec2.New(ec2.API{
		EC2: awsec2.NewFromConfig(cfg, ec2.Options), Parameters: ssm.NewFromConfig(cfg), Secrets: secretsmanager.NewFromConfig(cfg),
		Identity: sts.NewFromConfig(cfg), Pricing: pricing.NewFromConfig(cfg), Region: cfg.Region,
	}, c)
	if err != nil {
		t.Fatal(err)
	}
	return cloud, sqs.NewFromConfig(cfg)
}

// count returns how many requests of an action arrived.
func (r *region) count(action string) int {
	n := 0
	for _, c := range r.api.Calls() {
		if c.Action == action {
			n++
		}
	}
	return n
}

// launched returns how many instances were started.
func (r *region) launched() int {
	n := 0
	for _, e := range r.w.Ledger() {
		if e.Kind == sim.Launched {
			n++
		}
	}
	return n
}

func request(token, zone, typ string, m nodes.Market) nodes.LaunchRequest {
	return nodes.LaunchRequest{
		Token: token, Cluster: "prod", ActionID: "action", Template: config().Template(),
		Offering: nodes.Offering{Zone: zone, Subnet: "subnet-" + zone, Type: typ, Market: m},
	}
}

func kindOf(err error) nodes.LaunchFailure {
	var le *nodes.LaunchError
	if errors.As(err, &le) {
		return le.Kind
	}
	return ""
}
