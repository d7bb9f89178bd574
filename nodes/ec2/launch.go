package ec2

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/muster-dev/muster/nodes"
)

// Launch starts one instance as req says it, and nothing but req: what this Cloud is configured with can have changed since req was
// written down.
func (c *Cloud) Launch(ctx context.Context, req nodes.LaunchRequest) (nodes.Instance, error) {
	in, err := c.runInput(ctx, req)
	if err != nil {
		return nodes.Instance{}, fmt.Errorf("preparing the launch: %w", err)
	}
	out, err := c.api.EC2.RunInstances(ctx, in)
	if err != nil {
		return nodes.Instance{}, spotError(launchError(err), req.Offering.Market)
	}
	if len(out.Instances) != 1 {
		return nodes.Instance{}, fmt.Errorf("the reply to a launch has %d instances instead of one", len(out.Instances))
	}
	i, err := c.instance(out.Instances[0])
	if err != nil {
		return nodes.Instance{}, fmt.Errorf("reading the reply to a launch: %w", err)
	}
	return i, nil
}

// refuse is a launch that is not sent because it can't be right.
func refuse(code, message string, args ...any) error {
	return &nodes.LaunchError{Kind: nodes.FailPermanent, Code: code, Message: fmt.Sprintf(message, args...)}
}

// runInput translates a launch. The client token must be there: without one the SDK would make up a random one, and a repetition
// would be another instance.
func (c *Cloud) runInput(ctx context.Context, req nodes.LaunchRequest) (*ec2.RunInstancesInput, error) {
	t := req.Template
	switch {
	case req.Token == "" || len(req.Token) > 64:
		return nil, refuse("Muster.Token", "the client token has %d characters instead of 1 to 64", len(req.Token))
	case t.ID == "" && t.ImageID == "":
		return nil, refuse("Muster.Template", "the launch names neither a launch template nor an image: set LAUNCH_TEMPLATE or AMI_ID")
	case t.ID != "" && !versionNo.MatchString(t.Version):
		return nil, refuse("Muster.Template", "version %q of launch template %s is no number: set LAUNCH_TEMPLATE_VERSION", t.Version, t.ID)
	}
	tags := c.instanceTags(req)
	in := &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), ClientToken: &req.Token,
		InstanceType: types.InstanceType(req.Offering.Type), SubnetId: &req.Offering.Subnet,
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpEndpoint: types.InstanceMetadataEndpointStateEnabled, HttpTokens: types.HttpTokensStateRequired,
			HttpPutResponseHopLimit: aws.Int32(1), // so that pods can't use the node's role
		},
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeInstance, Tags: tags}, {ResourceType: types.ResourceTypeVolume, Tags: tags},
		},
	}
	if t.ID != "" {
		in.LaunchTemplate = &types.LaunchTemplateSpecification{Version: &t.Version}
		if strings.HasPrefix(t.ID, "lt-") {
			in.LaunchTemplate.LaunchTemplateId = &t.ID
		} else {
			in.LaunchTemplate.LaunchTemplateName = &t.ID
		}
	}
	if t.ImageID != "" {
		in.ImageId = &t.ImageID
	}
	if t.SecurityGroups != "" {
		in.SecurityGroupIds = strings.Split(t.SecurityGroups, ",")
	}
	if t.InstanceProfile != "" {
		in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: &t.InstanceProfile}
	}
	if req.Offering.Market == nodes.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
			SpotInstanceType: types.SpotInstanceTypeOneTime, InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate,
		}}
	}
	data, err := c.userData(ctx, t.UserDataRef)
	if err != nil {
		return nil, err
	}
	if data != "" {
		in.UserData = aws.String(base64.StdEncoding.EncodeToString([]byte(data)))
	}
	return in, nil
}

// instanceTags returns the tags of an instance and of its volumes. The cluster's tag is that of the configuration: without it the
// instance would have no owner.
func (c *Cloud) instanceTags(req nodes.LaunchRequest) []types.Tag {
	cluster := c.c.clusterTag()
	var out []types.Tag
	for _, t := range []Tag{
		{"Name", nameOf(cluster, req.Cluster) + "-worker"}, cluster, {ActionTag, req.ActionID}, {OrdinalTag, strconv.Itoa(req.Ordinal)},
	} {
		out = append(out, types.Tag{Key: aws.String(t.Key), Value: aws.String(t.Value)})
	}
	if req.Offering.Pool != "" {
		out = append(out, types.Tag{Key: aws.String(PoolTag), Value: aws.String(req.Offering.Pool)})
	}
	if req.TemplateHash != "" {
		out = append(out, types.Tag{Key: aws.String(HashTag), Value: aws.String(req.TemplateHash)})
	}
	return out
}

// nameOf returns a name for people: the cluster's, or the end of its tag's key, as in kubernetes.io/cluster/prod=owned.
func nameOf(cluster Tag, name string) string {
	if name != "" {
		return name
	}
	if prefix, last, ok := strings.Cut(cluster.Key, "/cluster/"); ok && prefix != "" {
		return last
	}
	return cluster.Value
}

// userData returns the user data that a reference stands for, "" to leave it to the launch template.
func (c *Cloud) userData(ctx context.Context, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	if strings.HasPrefix(ref, joinScheme) {
		j, err := ParseJoin(ref)
		if err != nil {
			return "", refuse("Muster.UserData", "%v", err)
		}
		return UserData(j)
	}
	r, err := ParseRef(ref)
	if err != nil {
		return "", refuse("Muster.UserData", "%v", err)
	}
	data, err := c.Fetch(ctx, r)
	if err != nil {
		return "", err
	}
	if len(data) > largestUserData {
		return "", refuse("Muster.UserData", "the user data of %s has %d bytes, EC2 takes %d", r, len(data), largestUserData)
	}
	return data, nil
}
