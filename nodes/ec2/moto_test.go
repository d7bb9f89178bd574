package ec2_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// A second opinion on what the region of this repository says about requests and replies, tags, filters, templates, parameters and
// queues: moto, which others wrote. It is no help with client tokens, capacity and visibility.
func TestSecondOpinion(t *testing.T) {
	url := "http://" + component.Moto().Start(t).Addr
	ctx := t.Context()
	cfg := aws.Config{Region: "eu-central-1", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")}
	api := awsec2.NewFromConfig(cfg, ec2.Options)
	c := prepare(t, cfg, api)
	cloud, err := ec2.New(ec2.API{
		EC2: api, Parameters: ssm.NewFromConfig(cfg), Secrets: secretsmanager.NewFromConfig(cfg), Identity: sts.NewFromConfig(cfg),
	}, c)
	if err != nil {
		t.Fatal(err)
	}

	subnets, err := cloud.Subnets(ctx)
	if err != nil || len(subnets) != 2 || subnets[0].Zone == subnets[1].Zone {
		t.Fatalf("%v, %v", subnets, err)
	}
	var launched []nodes.Instance
	for i, m := range []nodes.Market{nodes.Spot, nodes.OnDemand} {
		in, err := cloud.Launch(ctx, nodes.LaunchRequest{
			Token: "token-" + string(m), Cluster: "prod", ActionID: "action", Ordinal: i, Template: c.Template(),
			Offering: nodes.Offering{Zone: subnets[i].Zone, Subnet: subnets[i].ID, Type: "m5.large", Market: m},
		})
		if err != nil || in.Market != m || in.Zone != subnets[i].Zone || in.ActionID != "action" || in.Foreign || in.LaunchedAt.IsZero() || in.PrivateIP == "" {
			t.Fatalf("%+v, %v", in, err)
		}
		launched = append(launched, in)
	}
	list, err := cloud.Workers(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	found, err := cloud.Lookup(ctx, []string{launched[0].ID, "i-0123456789abcdef0"})
	if err != nil || len(found) != 1 || found[launched[0].ID].Type != "m5.large" {
		t.Errorf("%+v, %v", found, err)
	}
	if d, err := cloud.Diagnose(ctx, launched[0].ID); err != nil || d.State == "" {
		t.Errorf("%+v, %v", d, err)
	}
	for _, check := range cloud.Check(ctx) {
		// moto knows permissions only when told, and answers a dry run like EC2.
		if !check.OK {
			t.Errorf("%+v", check)
		}
	}
	for range 2 {
		if err := cloud.Terminate(ctx, launched[0].ID); err != nil {
			t.Error(err)
		}
	}
	if found, err := cloud.Lookup(ctx, []string{launched[0].ID}); err != nil || !found[launched[0].ID].Gone() {
		t.Errorf("%+v, %v", found, err)
	}
	if err := cloud.Terminate(ctx, "i-0123456789abcdef0"); err != nil {
		t.Errorf("ending one that never was: %v", err)
	}
	for text, want := range map[string]string{"ssm:/muster/user-data:1": "first", "ssm:/muster/user-data": "second", "secretsmanager:muster/token": "secret"} {
		ref, err := ec2.ParseRef(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cloud.Fetch(ctx, ref); err != nil || got != want {
			t.Errorf("%s is %q, %v", text, got, err)
		}
	}
	secondQueue(t, cfg)
}

// prepare makes what a deployment has: tagged subnets, a launch template, parameters and a secret.
func prepare(t *testing.T, cfg aws.Config, api *awsec2.Client) ec2.Config {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := api.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{})
	must(err)
	images, err := api.DescribeImages(ctx, &awsec2.DescribeImagesInput{})
	must(err)
	image := ""
	for _, i := range images.Images {
		if i.Architecture == types.ArchitectureValuesX8664 && i.State == types.ImageStateAvailable {
			image = aws.ToString(i.ImageId)
		}
	}
	for _, s := range all.Subnets[:2] {
		_, err := api.CreateTags(ctx, &awsec2.CreateTagsInput{Resources: []string{*s.SubnetId}, Tags: []types.Tag{{Key: aws.String("muster.dev/cluster"), Value: aws.String("prod")}}})
		must(err)
	}
	template, err := api.CreateLaunchTemplate(ctx, &awsec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("muster-prod"), LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: &image},
	})
	must(err)
	parameters := ssm.NewFromConfig(cfg)
	for _, v := range []string{"first", "second"} {
		_, err := parameters.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/muster/user-data"), Value: aws.String(v), Type: ssmtypes.ParameterTypeSecureString, Overwrite: aws.Bool(true)})
		must(err)
	}
	_, err = secretsmanager.NewFromConfig(cfg).CreateSecret(ctx, &secretsmanager.CreateSecretInput{Name: aws.String("muster/token"), SecretString: aws.String("secret")})
	must(err)
	c := config()
	c.LaunchTemplate, c.LaunchTemplateVersion = aws.ToString(template.LaunchTemplate.LaunchTemplateId), "1"
	return c
}

func secondQueue(t *testing.T, cfg aws.Config) {
	t.Helper()
	api := sqs.NewFromConfig(cfg)
	made, err := api.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("muster")})
	if err != nil {
		t.Fatal(err)
	}
	event := nodes.InterruptionEvent{ID: "e", Kind: nodes.Warning, InstanceID: "i-0123456789abcdef0", At: time.Now().UTC().Truncate(time.Second)}
	if _, err := api.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: aws.String(awsapi.Event(event))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	handled := make(chan nodes.InterruptionEvent, 1)
	q := ec2.Queue{API: api, URL: *made.QueueUrl, Wait: time.Second, Handle: func(_ context.Context, e nodes.InterruptionEvent) error {
		handled <- e
		cancel()
		return nil
	}}
	if err := q.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-handled; got != event {
		t.Errorf("%+v", got)
	}
	left, err := api.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: made.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
	if err != nil || left.Attributes["ApproximateNumberOfMessages"] != "0" || left.Attributes["ApproximateNumberOfMessagesNotVisible"] != "0" {
		t.Errorf("%+v, %v", left, err)
	}
}
