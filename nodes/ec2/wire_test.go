package ec2_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// Every code of RunInstances on https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html that a launch of ours
// can meet, by what has to follow.
func TestErrorCodesOfALaunch(t *testing.T) {
	for want, codes := range map[nodes.LaunchFailure][]string{
		nodes.FailCapacity: {
			"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "InsufficientVolumeCapacity",
			"InsufficientCapacity", "UnfulfillableCapacity", "SpotMaxPriceTooLow", "Unsupported", "UnsupportedOperation", "VolumeTypeNotAvailableInZone",
		},
		nodes.FailQuota: {
			"VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "HostLimitExceeded", "VolumeLimitExceeded", "MaxIOPSLimitExceeded",
		},
		nodes.FailAddresses:  {"InsufficientFreeAddressesInSubnet"},
		nodes.FailSpotRole:   {"AuthFailure.ServiceLinkedRoleCreationNotPermitted"},
		nodes.FailThrottled:  {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException", "BandwidthLimitExceeded", "ConcurrentTagAccess"},
		nodes.FailTokenSpent: {"IdempotentInstanceTerminated"},
		nodes.FailPermanent: {
			"IdempotentParameterMismatch", "UnauthorizedOperation", "AuthFailure", "OptInRequired", "PendingVerification", "Blocked", "InvalidAMIID.NotFound",
			"InvalidAMIID.Unavailable", "InvalidParameterValue", "InvalidParameterCombination", "MissingParameter", "InvalidSubnetID.NotFound",
			"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.VersionNotFound", "InvalidGroup.NotFound", "InvalidKeyPair.NotFound",
			"InvalidUserData.Malformed", "TagLimitExceeded", "RequestExpired", "SignatureDoesNotMatch", "SomethingNewThatIsOurFault",
		},
		"": {"InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable", "RequestTimeout"},
	} {
		for _, code := range codes {
			for _, c := range []string{code, "Client." + code} {
				r := open(t)
				r.api.Fault(awsapi.Fault{Action: "RunInstances", Code: c})
				_, err := r.cloud.Launch(t.Context(), request("t", "a", "m5.large", nodes.OnDemand))
				if got := kindOf(err); got != want || err == nil {
					t.Errorf("%s is %q, want %q: %v", c, got, want, err)
				}
				if n := r.count("RunInstances"); n != 1 && want != nodes.FailThrottled {
					t.Errorf("%s was attempted %d times", c, n)
				}
			}
		}
	}
}

// TestSpotRefusals: what ends an action for On-Demand leaves On-Demand to be tried for Spot.
func TestSpotRefusals(t *testing.T) {
	for code, want := range map[string]nodes.LaunchFailure{
		"UnauthorizedOperation": nodes.FailSpot, "OptInRequired": nodes.FailSpot, "InvalidParameterCombination": nodes.FailSpot, "SomethingNewThatIsOurFault": nodes.FailSpot,
		"IdempotentParameterMismatch": nodes.FailPermanent, "AuthFailure.ServiceLinkedRoleCreationNotPermitted": nodes.FailSpotRole,
		"InsufficientInstanceCapacity": nodes.FailCapacity, "InternalError": "",
	} {
		r := open(t)
		r.api.Fault(awsapi.Fault{Action: "RunInstances", Code: code})
		if _, err := r.cloud.Launch(t.Context(), request("t", "a", "m5.large", nodes.Spot)); kindOf(err) != want || err == nil {
			t.Errorf("%s is %q, want %q: %v", code, kindOf(err), want, err)
		}
	}
}

func TestAnErrorThatIsTheServicesFaultLeavesTheOutcomeUnknown(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504, 408} {
		r := open(t)
		r.api.Fault(awsapi.Fault{Action: "RunInstances", Code: "SomethingNew", Status: status})
		if _, err := r.cloud.Launch(t.Context(), request("t", "a", "m5.large", nodes.Spot)); err == nil || kindOf(err) != "" {
			t.Errorf("%d: %v", status, err)
		}
	}
	r := open(t)
	r.api.Fault(awsapi.Fault{Action: "RunInstances", Code: "InsufficientInstanceCapacity", Status: 500})
	if _, err := r.cloud.Launch(t.Context(), request("t", "a", "m5.large", nodes.Spot)); kindOf(err) != nodes.FailCapacity {
		t.Errorf("a capacity error with status 500, as EC2 sends it: %v", err)
	}
	if n := r.count("RunInstances"); n != 1 {
		t.Errorf("the SDK attempted it %d times", n)
	}
}

func TestALaunchWhoseReplyIsLostGivesOneInstanceWhenRepeated(t *testing.T) {
	for name, fault := range map[string]awsapi.Fault{
		"dropped": {Action: "RunInstances", Drop: true, Times: 1},
		"cut off": {Action: "RunInstances", Cut: 300, Times: 1},
	} {
		r := open(t)
		r.api.Fault(fault)
		req := request("t", "a", "m5.large", nodes.Spot)
		if _, err := r.cloud.Launch(t.Context(), req); err == nil || kindOf(err) != "" {
			t.Fatalf("%s: %v", name, err)
		}
		in, err := r.cloud.Launch(t.Context(), req)
		if err != nil || r.launched() != 1 || in.ID != entries(r.w, sim.Launched)[0].Instance {
			t.Errorf("%s: %+v, %v, launched %d", name, in, err, r.launched())
		}
	}
}

func TestAThrottledLaunchIsAttemptedAgainAndThenSaysSo(t *testing.T) {
	r := open(t)
	r.api.Fault(awsapi.Fault{Action: "RunInstances", Times: 2})
	launch(t, r.cloud, request("t", "a", "m5.large", nodes.Spot))
	if n := r.count("RunInstances"); n != 3 || r.launched() != 1 {
		t.Errorf("%d attempts, %d instances", n, r.launched())
	}
	r.api.Fault(awsapi.Fault{})
	if _, err := r.cloud.Launch(t.Context(), request("u", "a", "m5.large", nodes.Spot)); kindOf(err) != nodes.FailThrottled {
		t.Errorf("%v", err)
	}
	if _, err := r.cloud.Workers(t.Context()); err == nil || !strings.Contains(err.Error(), "RequestLimitExceeded") {
		t.Errorf("%v", err)
	}
}

// What a proxy, a captive portal or a half-dead load balancer answers is never an empty list: from one the sweep would conclude that
// every instance is gone.
func TestAReplyThatIsNotEC2sIsAnError(t *testing.T) {
	r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b"} })
	for _, body := range []string{
		"", " ", "OK", "<html><body>login</body></html>", "<?xml version=\"1.0\"?><DescribeSubnetsResponse/>", "{}", "<DescribeInstancesResponse",
		"<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId></item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
		"<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceState><name>running</name></instanceState></item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
	} {
		r.api.Heal()
		r.api.Fault(awsapi.Fault{Garbage: true, Body: body})
		if list, err := r.cloud.Workers(t.Context()); err == nil {
			t.Errorf("%q gave %d instances and no error", body, len(list))
		}
		if found, err := r.cloud.Lookup(t.Context(), []string{"i-002"}); err == nil {
			t.Errorf("%q gave %v and no error", body, found)
		}
		if in, err := r.cloud.Launch(t.Context(), request("t", "a", "m", nodes.Spot)); err == nil || kindOf(err) != "" {
			t.Errorf("%q gave %v, %v", body, in, err)
		}
		if err := r.cloud.Terminate(t.Context(), "i-002"); err == nil {
			t.Errorf("%q: terminated", body)
		}
		if s, err := r.cloud.Subnets(t.Context()); err == nil {
			t.Errorf("%q gave subnets %v", body, s)
		}
	}
	r.api.Heal()
	if _, err := r.cloud.Workers(t.Context()); err != nil {
		t.Error(err)
	}
	for cut := 1; cut < 1500; cut += 97 {
		r.api.Heal()
		r.api.Fault(awsapi.Fault{Action: "DescribeInstances", Cut: cut})
		if list, err := r.cloud.Workers(t.Context()); err == nil {
			t.Errorf("cut after %d bytes: %d instances and no error", cut, len(list))
		}
	}
}

func TestAListThatBreaksOffIsIncomplete(t *testing.T) {
	r := open(t, func(s *setup) { s.sim.Workers = slices.Repeat([]string{"a"}, 20); s.api.PageSize = 5 })
	r.api.Fault(awsapi.Fault{Action: "DescribeInstances", After: 2, Code: "InternalError", Status: 500})
	list, err := r.cloud.Workers(t.Context())
	var half *nodes.IncompleteError
	if !errors.As(err, &half) || len(list) != 10 {
		t.Errorf("%d, %v", len(list), err)
	}
	r.api.Heal()
	page := `<DescribeInstancesResponse><reservationSet/><nextToken>same</nextToken></DescribeInstancesResponse>`
	r.api.Fault(awsapi.Fault{Action: "DescribeInstances", Garbage: true, Body: page})
	if _, err := r.cloud.Workers(t.Context()); !errors.As(err, &half) {
		t.Errorf("pages in a circle: %v", err)
	}
	page = `<DescribeSubnetsResponse><subnetSet/><nextToken>same</nextToken></DescribeSubnetsResponse>`
	r.api.Fault(awsapi.Fault{Action: "DescribeSubnets", Garbage: true, Body: page})
	if _, err := r.cloud.Subnets(t.Context()); !errors.As(err, &half) {
		t.Errorf("subnets' pages in a circle: %v", err)
	}
}

// A request that is stalled ends with its context, and nothing more is sent then: not by the SDK's retries either.
func TestAStalledCallEndsWithItsContextAndIsNotSentAgain(t *testing.T) {
	r := open(t)
	r.api.Fault(awsapi.Fault{Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	r.api.OnCall(func(awsapi.Call) { cancel() })
	if _, err := r.cloud.Workers(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.api.Heal()
	if _, err := r.cloud.Workers(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n := r.count("DescribeInstances"); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestAnAttemptAfterTheDeadlineOfTheCallersClockIsNotSent(t *testing.T) {
	r := open(t)
	ctx, cancel := r.w.Clock().WithDeadline(t.Context(), r.w.Clock().Now().Add(time.Second))
	defer cancel()
	// The first attempt is throttled; while the SDK pauses, the caller's time runs out.
	r.api.Fault(awsapi.Fault{Action: "RunInstances"})
	r.api.OnCall(func(c awsapi.Call) { r.w.Advance(2 * time.Second) })
	_, err := r.cloud.Launch(ctx, request("t", "a", "m", nodes.Spot))
	if !errors.Is(err, context.DeadlineExceeded) || r.count("RunInstances") != 1 {
		t.Errorf("%v after %d requests", err, r.count("RunInstances"))
	}
}

// See internal/awsbody: net/http must be able to finish with a request's body after the SDK has closed it.
func TestBodiesOfRequestsAreReadOnly(t *testing.T) {
	sent := 0
	client := roundTrip(func(r *http.Request) (*http.Response, error) {
		sent++
		if _, ok := r.Body.(io.WriterTo); ok {
			t.Errorf("the body of %s is a %T, which has a method WriteTo", r.URL, r.Body)
		}
		return nil, errors.New("no reply")
	})
	cfg := aws.Config{Region: "local", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""), HTTPClient: client, RetryMaxAttempts: 1}
	_, err := awsec2.NewFromConfig(cfg, ec2.Options).DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{})
	if err == nil || sent != 1 {
		t.Errorf("it sent %d requests: %v", sent, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) Do(r *http.Request) (*http.Response, error) { return f(r) }

// A request that the cloud carries out after its sender has given it up is what a client token is for.
func TestALaunchThatArrivesLateIsFoundByItsToken(t *testing.T) {
	r := open(t)
	r.api.Fault(awsapi.Fault{Action: "RunInstances", Late: true, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r.api.OnCall(func(awsapi.Call) { cancel() })
	req := request("t", "a", "m5.large", nodes.Spot)
	if _, err := r.cloud.Launch(ctx, req); !errors.Is(err, context.Canceled) || kindOf(err) != "" {
		t.Fatal(err)
	}
	// Whichever of the two comes first, there is one instance.
	if in := launch(t, r.cloud, req); r.launched() != 1 || in.ID != entries(r.w, sim.Launched)[0].Instance {
		t.Errorf("%+v, launched %d", in, r.launched())
	}
}

func TestALaunchIsSentAsItWasWrittenDown(t *testing.T) {
	r := open(t, func(s *setup) { s.config.ClusterTag = ec2.Tag{Key: "kubernetes.io/cluster/prod", Value: "owned"} })
	req := request("token", "a", "m5.large", nodes.Spot)
	req.Ordinal, req.Template.ImageID, req.Template.SecurityGroups, req.Template.InstanceProfile = 3, "ami-1", "sg-1,sg-2", "node"
	req.Cluster = ""
	launch(t, r.cloud, req)
	got := r.api.Calls()[0].Params
	for key, want := range map[string]string{
		"ClientToken": "token", "MinCount": "1", "MaxCount": "1", "InstanceType": "m5.large", "SubnetId": "subnet-a", "ImageId": "ami-1",
		"LaunchTemplate.LaunchTemplateId": "lt-0a1b", "LaunchTemplate.Version": "7", "SecurityGroupId.1": "sg-1", "SecurityGroupId.2": "sg-2",
		"IamInstanceProfile.Name": "node", "MetadataOptions.HttpTokens": "required", "MetadataOptions.HttpPutResponseHopLimit": "1",
		"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
		"InstanceInitiatedShutdownBehavior": "terminate",
		"TagSpecification.1.ResourceType":   "instance", "TagSpecification.2.ResourceType": "volume",
		"TagSpecification.1.Tag.1.Key": "Name", "TagSpecification.1.Tag.1.Value": "prod-worker",
		"TagSpecification.1.Tag.2.Key": "kubernetes.io/cluster/prod", "TagSpecification.1.Tag.2.Value": "owned",
		"TagSpecification.1.Tag.3.Key": ec2.ActionTag, "TagSpecification.1.Tag.3.Value": "action",
		"TagSpecification.1.Tag.4.Key": ec2.OrdinalTag, "TagSpecification.1.Tag.4.Value": "3",
	} {
		if got.Get(key) != want {
			t.Errorf("%s is %q, want %q", key, got.Get(key), want)
		}
	}
	for _, bad := range []func(*nodes.LaunchRequest){
		func(r *nodes.LaunchRequest) { r.Token = "" },
		func(r *nodes.LaunchRequest) { r.Token = strings.Repeat("x", 65) },
		func(r *nodes.LaunchRequest) { r.Template = nodes.Template{} },
		func(r *nodes.LaunchRequest) { r.Template.Version = "$Latest" },
		func(r *nodes.LaunchRequest) { r.Template.UserDataRef = "somewhere" },
		func(r *nodes.LaunchRequest) { r.Template.UserDataRef = "k3s:server=http%3A%2F%2Fx" },
	} {
		wrong := req
		bad(&wrong)
		if _, err := r.cloud.Launch(t.Context(), wrong); kindOf(err) != nodes.FailPermanent {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if n := r.count("RunInstances"); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestUserDataKeptElsewhereIsReadByItsVersion(t *testing.T) {
	r := open(t, func(s *setup) {
		s.api.Parameters = map[string]string{"/muster/user-data:3": "#!/bin/sh\necho parameter"}
		s.api.Secrets = map[string]string{"muster/user-data": "#!/bin/sh\necho secret", "long": strings.Repeat("x", 17<<10)}
	})
	req := request("t", "a", "m", nodes.Spot)
	for ref, want := range map[string]string{"ssm:/muster/user-data:3": "IyEvYmluL3NoCmVjaG8gcGFyYW1ldGVy", "secretsmanager:muster/user-data#1": "IyEvYmluL3NoCmVjaG8gc2VjcmV0", "": ""} {
		req.Token, req.Template.UserDataRef = "token"+ref, ref
		launch(t, r.cloud, req)
		calls := r.api.Calls()
		if got := calls[len(calls)-1].Params.Get("UserData"); got != want {
			t.Errorf("%s gave %q", ref, got)
		}
	}
	req.Template.UserDataRef = "ssm:/muster/user-data:4"
	if _, err := r.cloud.Launch(t.Context(), req); err == nil || kindOf(err) != "" || !strings.Contains(err.Error(), "ParameterNotFound") {
		t.Errorf("%v", err)
	}
	req.Template.UserDataRef = "secretsmanager:long"
	if _, err := r.cloud.Launch(t.Context(), req); kindOf(err) != nodes.FailPermanent {
		t.Errorf("%v", err)
	}
}

func TestInstancesOfOthersAreForeignAndNeverListed(t *testing.T) {
	r := open(t, func(s *setup) {
		s.api.Foreign = []nodes.Instance{{ID: "i-fab", State: nodes.StateRunning, Zone: "a", Foreign: true}}
	})
	list, err := r.cloud.Workers(t.Context())
	if err != nil || len(list) != 1 || !list[0].ControlPlane {
		t.Errorf("%+v, %v", list, err)
	}
	found, err := r.cloud.Lookup(t.Context(), []string{"i-fab", "i-001"})
	if err != nil || !found["i-fab"].Foreign || found["i-001"].Foreign {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestLookupAsksForAnyNumberOfInstances(t *testing.T) {
	r := open(t, func(s *setup) { s.sim.Workers = slices.Repeat([]string{"a"}, 450) })
	list, err := r.cloud.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, in := range list {
		ids = append(ids, in.ID)
	}
	found, err := r.cloud.Lookup(t.Context(), ids)
	if err != nil || len(found) != len(ids) || len(ids) != 451 {
		t.Errorf("%d of %d, %v", len(found), len(ids), err)
	}
	if n := r.count("DescribeInstances"); n != 1+3 {
		t.Errorf("%d requests", n)
	}
}

func TestATypeWithoutLatestConsoleGivesTheStoredOne(t *testing.T) {
	r := open(t)
	in := launch(t, r.cloud, request("t", "a", "t2.small", nodes.OnDemand))
	r.w.Advance(10 * time.Second)
	if d, err := r.cloud.Diagnose(t.Context(), in.ID); err != nil || d.Console != "boot of "+in.ID {
		t.Errorf("%+v, %v", d, err)
	}
	if n := r.count("GetConsoleOutput"); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestMissingPermissionsAreExplained(t *testing.T) {
	r := open(t, func(s *setup) { s.sim.Workers = []string{"a"} })
	r.api.Deny("ec2:RunInstances", "ec2:TerminateInstances")
	_, err := r.cloud.Launch(t.Context(), request("t", "a", "m", nodes.OnDemand))
	err2 := r.cloud.Terminate(t.Context(), "i-002")
	for _, err := range []error{err, err2} {
		if err == nil || !strings.Contains(err.Error(), "muster nodes doctor") || strings.Contains(err.Error(), "Encoded") || len(err.Error()) > 500 {
			t.Errorf("%v", err)
		}
	}
	if kindOf(err) != nodes.FailPermanent {
		t.Errorf("%v", err)
	}
}

func TestTimeRunsByItselfWhenItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sim.New(sim.Options{Policy: policy()})
		began := w.Clock().Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { sim.RealTime(ctx, w, 60); close(done) }()
		w.Client("A", nil).Launch(ctx, request("t", "a", "m", nodes.Spot)) //nolint:errcheck // what matters is that it joins
		time.Sleep(3 * time.Second)
		cancel()
		<-done
		if d := w.Clock().Now().Sub(began); d < 179*time.Second || d > 181*time.Second || w.Fleet().Ready != 1 {
			t.Errorf("in 3 s at speed 60 %s passed, %+v", d, w.Fleet())
		}
	})
}
