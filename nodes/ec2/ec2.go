package ec2

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/muster-dev/muster/nodes"
)

// API is the services that a Cloud talks to. EC2 is required.
type API struct {
	EC2        EC2
	Parameters Parameters // nil: ssm references can't be read
	Secrets    Secrets    // nil: secretsmanager references can't be read
	Identity   Identity   // nil: Check doesn't tell whose credentials are used
	Pricing    Pricing    // nil: On-Demand prices can't be read
	Region     string     // whose prices are asked for
}

// EC2 is what a Cloud needs of EC2; *ec2.Client has it. A client must be made with Options, which see to deadlines, retries and
// replies that are none; Open does.
type EC2 interface {
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
	DescribeInstanceStatus(context.Context, *ec2.DescribeInstanceStatusInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceStatusOutput, error)
	TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
	DescribeSubnets(context.Context, *ec2.DescribeSubnetsInput, ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error)
	GetConsoleOutput(context.Context, *ec2.GetConsoleOutputInput, ...func(*ec2.Options)) (*ec2.GetConsoleOutputOutput, error)
	DescribeInstanceTypes(context.Context, *ec2.DescribeInstanceTypesInput, ...func(*ec2.Options)) (*ec2.DescribeInstanceTypesOutput, error)
	DescribeLaunchTemplateVersions(context.Context, *ec2.DescribeLaunchTemplateVersionsInput, ...func(*ec2.Options)) (*ec2.DescribeLaunchTemplateVersionsOutput, error)
	DescribeSpotPriceHistory(context.Context, *ec2.DescribeSpotPriceHistoryInput, ...func(*ec2.Options)) (*ec2.DescribeSpotPriceHistoryOutput, error)
	DescribeImages(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error)
}

// Identity is what Check needs of STS; *sts.Client has it.
type Identity interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// Cloud is EC2 as the node plane sees it. Its methods may be called by several goroutines.
type Cloud struct {
	api API
	c   Config
}

var _ nodes.Cloud = (*Cloud)(nil)

// New returns a Cloud that uses the given clients. The error lists everything that is wrong with c.
func New(api API, c Config) (*Cloud, error) {
	if api.EC2 == nil {
		return nil, errors.New("a Cloud needs an EC2 client")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Cloud{api, c}, nil
}

// Workers lists every instance with the cluster's tag, of any state, K3s servers among them and marked as such.
func (c *Cloud) Workers(ctx context.Context) ([]nodes.Instance, error) {
	return c.describe(ctx, filter("tag:"+c.c.clusterTag().Key, c.c.clusterTag().Value))
}

// largestFilter is how many values a filter may have.
const largestFilter = 200

// Lookup describes instances by ID. It filters by ID instead of asking for the IDs, which would fail as a whole for one that is gone.
func (c *Cloud) Lookup(ctx context.Context, instanceIDs []string) (map[string]nodes.Instance, error) {
	out := make(map[string]nodes.Instance, len(instanceIDs))
	for ids := range slices.Chunk(instanceIDs, largestFilter) {
		found, err := c.describe(ctx, filter("instance-id", ids...))
		if err != nil {
			return nil, err
		}
		for _, in := range found {
			out[in.ID] = in
		}
	}
	return out, nil
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

// describe reads all pages. Of a list that breaks off it returns what there is, with an *nodes.IncompleteError.
func (c *Cloud) describe(ctx context.Context, f types.Filter) ([]nodes.Instance, error) {
	var out []nodes.Instance
	in := &ec2.DescribeInstancesInput{Filters: []types.Filter{f}, MaxResults: aws.Int32(1000)}
	for page := 1; ; page++ {
		reply, err := c.api.EC2.DescribeInstances(ctx, in)
		if err != nil {
			err = fmt.Errorf("describing instances, page %d: %w", page, explained(err))
			if page > 1 {
				err = &nodes.IncompleteError{What: "instances", Err: err}
			}
			return out, err
		}
		for _, r := range reply.Reservations {
			for _, i := range r.Instances {
				n, err := c.instance(i)
				if err != nil {
					return out, &nodes.IncompleteError{What: "instances", Err: err}
				}
				out = append(out, n)
			}
		}
		next := aws.ToString(reply.NextToken)
		if next == "" {
			return out, nil
		}
		if next == aws.ToString(in.NextToken) {
			return out, &nodes.IncompleteError{What: "instances", Err: fmt.Errorf("page %d names itself as the next one", page)}
		}
		in.NextToken = &next
	}
}

// instance translates an instance. One without ID or state, or of a state that EC2 doesn't have, is a reply that can't be trusted.
func (c *Cloud) instance(i types.Instance) (nodes.Instance, error) {
	out := nodes.Instance{
		ID: aws.ToString(i.InstanceId), Type: string(i.InstanceType), Market: nodes.OnDemand, PrivateIP: aws.ToString(i.PrivateIpAddress),
		Foreign: true,
	}
	if i.State != nil {
		out.State = nodes.InstanceState(i.State.Name)
	}
	switch out.State {
	case nodes.StatePending, nodes.StateRunning, nodes.StateStopping, nodes.StateStopped, nodes.StateShuttingDown, nodes.StateTerminated:
	default:
		return out, fmt.Errorf("instance %q has the unknown state %q", out.ID, out.State)
	}
	if out.ID == "" {
		return out, errors.New("an instance has no ID")
	}
	if i.Placement != nil {
		out.Zone = aws.ToString(i.Placement.AvailabilityZone)
	}
	if i.InstanceLifecycle == types.InstanceLifecycleTypeSpot {
		out.Market = nodes.Spot
	}
	if i.LaunchTime != nil {
		out.LaunchedAt = i.LaunchTime.UTC()
	}
	for _, t := range i.Tags {
		switch tag := (Tag{aws.ToString(t.Key), aws.ToString(t.Value)}); {
		case tag == c.c.clusterTag():
			out.Foreign = false
		case tag == c.c.serverTag():
			out.ControlPlane = true
		case tag.Key == ActionTag:
			out.ActionID = tag.Value
		case tag.Key == PoolTag:
			out.Pool = tag.Value
		case tag.Key == HashTag:
			out.TemplateHash = tag.Value
		}
	}
	return out, nil
}

// Subnets lists the available subnets that the configuration names. Subnets that are named and don't exist are an error, and so is
// none at all.
func (c *Cloud) Subnets(ctx context.Context) ([]nodes.Subnet, error) {
	in := &ec2.DescribeSubnetsInput{}
	if len(c.c.SubnetIDs) > 0 {
		in.SubnetIds = c.c.SubnetIDs
	} else {
		in.Filters = []types.Filter{filter("tag:"+c.c.subnetTag().Key, c.c.subnetTag().Value)}
		in.MaxResults = aws.Int32(1000)
	}
	var out []nodes.Subnet
	for {
		reply, err := c.api.EC2.DescribeSubnets(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("describing subnets: %w", explained(err))
		}
		for _, s := range reply.Subnets {
			if s.State == types.SubnetStateAvailable && s.SubnetId != nil && s.AvailabilityZone != nil {
				out = append(out, nodes.Subnet{ID: *s.SubnetId, Zone: *s.AvailabilityZone})
			}
		}
		next := aws.ToString(reply.NextToken)
		if next == "" {
			break
		}
		if next == aws.ToString(in.NextToken) {
			return nil, &nodes.IncompleteError{What: "subnets", Err: errors.New("a page names itself as the next one")}
		}
		in.NextToken = &next
	}
	if len(out) == 0 {
		where := "tag " + c.c.subnetTag().String() + ": give it to the subnets in which to launch, or name them by SUBNET_IDS"
		if len(c.c.SubnetIDs) > 0 {
			where = "an ID of SUBNET_IDS"
		}
		return nil, fmt.Errorf("describing subnets: none is available with %s", where)
	}
	return out, nil
}

// Terminate ends an instance. EC2 does not know an instance that ended an hour ago; that is no error.
func (c *Cloud) Terminate(ctx context.Context, instanceID string) error {
	out, err := c.api.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{instanceID}})
	switch {
	case isCode(err, "InvalidInstanceID.NotFound"):
		return nil
	case err != nil:
		return fmt.Errorf("terminating %s: %w", instanceID, explained(err))
	}
	for _, i := range out.TerminatingInstances {
		if aws.ToString(i.InstanceId) == instanceID && i.CurrentState != nil {
			switch s := nodes.InstanceState(i.CurrentState.Name); s {
			case nodes.StateShuttingDown, nodes.StateTerminated:
				return nil
			default:
				return fmt.Errorf("terminating %s: it is %s", instanceID, s)
			}
		}
	}
	return fmt.Errorf("terminating %s: the reply does not mention it", instanceID)
}

// Diagnose returns an instance's state, EC2's reason for it, and its console output: the latest where the type can tell it, else
// what was last stored.
func (c *Cloud) Diagnose(ctx context.Context, instanceID string) (nodes.Diagnosis, error) {
	var d nodes.Diagnosis
	reply, err := c.api.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{filter("instance-id", instanceID)}})
	if err != nil {
		return d, fmt.Errorf("describing %s: %w", instanceID, explained(err))
	}
	for _, r := range reply.Reservations {
		for _, i := range r.Instances {
			if i.State != nil {
				d.State = nodes.InstanceState(i.State.Name)
			}
			if i.StateReason != nil {
				d.Reason = aws.ToString(i.StateReason.Message)
			}
		}
	}
	console, err := c.console(ctx, instanceID, true)
	if isCode(err, "UnsupportedOperation") {
		console, err = c.console(ctx, instanceID, false)
	}
	if err != nil {
		return d, fmt.Errorf("reading the console of %s: %w", instanceID, explained(err))
	}
	d.Console = console
	return d, nil
}

func (c *Cloud) console(ctx context.Context, instanceID string, latest bool) (string, error) {
	in := &ec2.GetConsoleOutputInput{InstanceId: &instanceID}
	if latest {
		in.Latest = &latest
	}
	out, err := c.api.EC2.GetConsoleOutput(ctx, in)
	if err != nil {
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
	return string(text), err
}

// Fetch returns the value that a reference names. The error never contains it.
func (c *Cloud) Fetch(ctx context.Context, ref Ref) (string, error) {
	value, err := c.fetch(ctx, ref)
	switch {
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", ref, explained(err))
	case value == "":
		return "", fmt.Errorf("reading %s: it is empty", ref)
	}
	return value, nil
}

func (c *Cloud) fetch(ctx context.Context, ref Ref) (string, error) {
	switch {
	case ref.Service == "ssm" && c.api.Parameters != nil:
		p, err := getParameter(ctx, c.api.Parameters, ref)
		return aws.ToString(p.Value), err
	case ref.Service == "secretsmanager" && c.api.Secrets != nil:
		in := &secretsmanager.GetSecretValueInput{SecretId: &ref.Name}
		if ref.Version != "" {
			in.VersionId = &ref.Version
		}
		out, err := c.api.Secrets.GetSecretValue(ctx, in)
		if err != nil {
			return "", err
		}
		return aws.ToString(out.SecretString), nil
	}
	return "", errors.New("there is no client for " + ref.Service)
}
