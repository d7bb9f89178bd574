package ec2

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
)

// Check tries everything that running workers needs, without changing anything: whose credentials these are, each permission by a
// dry run, the launch template, image, instance types and subnets, and how nodes join.
func (c *Cloud) Check(ctx context.Context) []nodes.Check {
	k := &checker{Cloud: c, ctx: ctx}
	k.identity()
	workers := k.describeInstances()
	subnets := k.subnets()
	if len(c.c.Pools) == 0 {
		k.kindOfNodes(subnets)
	}
	for _, pool := range c.c.Pools {
		k.pool(pool, subnets)
	}
	k.prices(subnets)
	k.statuses(workers)
	k.onWorker(workers)
	if len(c.c.Pools) == 0 {
		k.join()
	}
	return k.out
}

// kindOfNodes tries what launching nodes of one kind needs.
func (k *checker) kindOfNodes(subnets []nodes.Subnet) {
	k.template()
	k.instanceTypes()
	for _, s := range subnets {
		k.launch(s)
	}
}

// pool tries what launching nodes of a pool needs, in its zones. Each check names the pool.
func (k *checker) pool(pool nodes.Pool, subnets []nodes.Subnet) {
	of := &checker{Cloud: &Cloud{k.api, k.c.In(pool)}, ctx: k.ctx, of: pool.Name}
	if len(pool.Zones) > 0 {
		subnets = slices.DeleteFunc(slices.Clone(subnets), func(s nodes.Subnet) bool { return !slices.Contains(pool.Zones, s.Zone) })
	}
	if len(subnets) == 0 {
		of.out = append(of.out, nodes.Check{Name: "subnets", Detail: "none of its zones has a subnet: " + strings.Join(pool.Zones, ", "), Fix: "correct zones, or add a subnet there"})
	}
	of.kindOfNodes(subnets)
	of.join()
	for _, c := range of.out {
		c.Name = "pool " + pool.Name + ": " + c.Name
		k.out = append(k.out, c)
	}
}

type checker struct {
	*Cloud
	ctx  context.Context
	out  []nodes.Check
	arch []string // of the image; empty if unknown
	of   string   // pool; "" without pools
}

func (k *checker) add(name string, err error, fix, detail string, args ...any) {
	check := nodes.Check{Name: name, OK: err == nil, Detail: fmt.Sprintf(detail, args...)}
	if err != nil {
		check.Detail, check.Fix = explained(err).Error(), fix
	}
	k.out = append(k.out, check)
}

// permitted turns the outcome of a dry run round: EC2 says by an error that the request would have succeeded.
func permitted(err error) error {
	if err == nil || isCode(err, "DryRunOperation") {
		return nil
	}
	return err
}

func (k *checker) identity() {
	if k.api.Identity == nil {
		return
	}
	out, err := k.api.Identity.GetCallerIdentity(k.ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		k.add("AWS credentials", err, "give this process a role or AWS_PROFILE, and check AWS_REGION", "")
		return
	}
	k.add("AWS credentials", nil, "", "%s", aws.ToString(out.Arn))
}

func grant(permission string) string { return "allow " + permission + " for Muster's role" }

func (k *checker) describeInstances() []nodes.Instance {
	workers, err := k.Workers(k.ctx)
	servers := 0
	for _, w := range workers {
		if w.ControlPlane {
			servers++
		}
	}
	k.add("ec2:DescribeInstances", err, grant("ec2:DescribeInstances"), "%s with tag %s, %d of them K3s servers", quantity.Of(len(workers), "instance"), k.c.clusterTag(), servers)
	return slices.DeleteFunc(workers, func(i nodes.Instance) bool { return i.ControlPlane || !i.Alive() })
}

func (k *checker) subnets() []nodes.Subnet {
	subnets, err := k.Subnets(k.ctx)
	zones := map[string]bool{}
	var names []string
	for _, s := range subnets {
		zones[s.Zone] = true
		names = append(names, s.ID+" in "+s.Zone)
	}
	k.add("ec2:DescribeSubnets", err, grant("ec2:DescribeSubnets")+", and set SUBNET_IDS or tag the subnets "+k.c.subnetTag().String(), "%s", strings.Join(names, ", "))
	if err == nil && len(zones) == 1 {
		k.out = append(k.out, nodes.Check{Name: "availability zones", Detail: "all subnets are in one zone: its failure takes every worker", Fix: "add a subnet in another zone"})
	}
	return subnets
}

func (k *checker) template() {
	image := k.c.AMI
	if t := k.c.LaunchTemplate; t != "" {
		in := &ec2.DescribeLaunchTemplateVersionsInput{Versions: []string{k.c.LaunchTemplateVersion}, LaunchTemplateName: &t}
		if strings.HasPrefix(t, "lt-") {
			in.LaunchTemplateName, in.LaunchTemplateId = nil, &t
		}
		out, err := k.api.EC2.DescribeLaunchTemplateVersions(k.ctx, in)
		if err == nil && (len(out.LaunchTemplateVersions) != 1 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil) {
			err = fmt.Errorf("version %s of %s is not there", k.c.LaunchTemplateVersion, t)
		}
		if err == nil && image == "" {
			image = aws.ToString(out.LaunchTemplateVersions[0].LaunchTemplateData.ImageId)
		}
		if err == nil && len(out.LaunchTemplateVersions[0].LaunchTemplateData.NetworkInterfaces) > 0 {
			k.out = append(k.out, nodes.Check{Name: "launch template: network interfaces",
				Detail: fmt.Sprintf("%s version %s has network interfaces, beside which EC2 accepts no subnet, so every launch fails", t, k.c.LaunchTemplateVersion),
				Fix:    "make a version without them that names its security groups for the instance, and set LAUNCH_TEMPLATE_VERSION: Muster chooses the subnet"})
		}
		k.add("launch template", err, grant("ec2:DescribeLaunchTemplateVersions")+", and correct LAUNCH_TEMPLATE and LAUNCH_TEMPLATE_VERSION", "%s version %s, image %s", t, k.c.LaunchTemplateVersion, image)
	}
	if !amiID.MatchString(image) { // a template can name an SSM parameter instead
		return
	}
	out, err := k.api.EC2.DescribeImages(k.ctx, &ec2.DescribeImagesInput{ImageIds: []string{image}})
	if err == nil && (len(out.Images) != 1 || out.Images[0].State != types.ImageStateAvailable) {
		err = fmt.Errorf("image %s is not available", image)
	}
	if err == nil {
		k.arch = []string{string(out.Images[0].Architecture)}
	}
	k.add("image", err, grant("ec2:DescribeImages")+", and set AMI_ID to an available image of this region", "%s, %s", image, strings.Join(k.arch, ""))
}

// instanceTypes compares what the types are with what is asked of them.
func (k *checker) instanceTypes() {
	wanted := k.c.types()
	if len(wanted) == 0 {
		return
	}
	in := &ec2.DescribeInstanceTypesInput{}
	for _, t := range wanted {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(t))
	}
	out, err := k.api.EC2.DescribeInstanceTypes(k.ctx, in)
	fix := grant("ec2:DescribeInstanceTypes") + ", and correct INSTANCE_TYPES"
	if err != nil {
		k.add("instance types", err, fix, "")
		return
	}
	var found, problems []string
	for _, t := range out.InstanceTypes {
		name := string(t.InstanceType)
		if k.c.Spot && !slices.Contains(t.SupportedUsageClasses, types.UsageClassTypeSpot) {
			problems = append(problems, name+" is not sold as Spot")
		}
		if len(k.arch) > 0 && t.ProcessorInfo != nil && !slices.Contains(t.ProcessorInfo.SupportedArchitectures, types.ArchitectureType(k.arch[0])) {
			problems = append(problems, name+" can't run an image for "+k.arch[0])
		}
		found = append(found, name)
	}
	for _, t := range wanted {
		if !slices.Contains(found, t) {
			problems = append(problems, t+" does not exist in this region")
		}
	}
	if len(problems) > 0 {
		err = fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	k.add("instance types", err, fix, "%s", strings.Join(found, ", "))
}

// launch dry-runs a launch in a subnet, on each market that will be used: the permission for instance, volume, network interface,
// subnet, security group, image and template, for the tags, and to pass the nodes' role.
func (k *checker) launch(s nodes.Subnet) {
	markets := []nodes.Market{nodes.OnDemand}
	if k.c.Spot {
		markets = append(markets, nodes.Spot)
	}
	for _, m := range markets {
		err := fmt.Errorf("INSTANCE_TYPES is empty")
		if len(k.c.InstanceTypes) > 0 {
			var in *ec2.RunInstancesInput
			in, err = k.runInput(k.ctx, nodes.LaunchRequest{
				Token: "muster-doctor", Cluster: k.c.Cluster, ActionID: "doctor", Template: k.c.Template(),
				Offering: nodes.Offering{Zone: s.Zone, Subnet: s.ID, Type: k.c.InstanceTypes[0], Market: m, Pool: k.of},
			})
			if err == nil {
				in.DryRun = aws.Bool(true)
				_, err = k.api.EC2.RunInstances(k.ctx, in)
			}
		}
		k.add(fmt.Sprintf("ec2:RunInstances %s in %s", m, s.ID), permitted(err),
			"allow ec2:RunInstances, ec2:CreateTags on launch and iam:PassRole of the nodes' role for Muster's role", "would succeed, with tags and role")
	}
}

// statuses reads the status checks of running workers.
func (k *checker) statuses(workers []nodes.Instance) {
	var ids []string
	for _, w := range workers {
		if w.State == nodes.StateRunning {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) == 0 {
		k.out = append(k.out, nodes.Check{Name: "ec2:DescribeInstanceStatus", OK: true, Detail: "not tried: no worker runs"})
		return
	}
	found, err := k.Impaired(k.ctx, ids)
	k.add("ec2:DescribeInstanceStatus", err, grant("ec2:DescribeInstanceStatus")+", or set IMPAIRED_TIMEOUT_SEC=0", "%d of %s fail a status check", len(found), quantity.Of(len(ids), "worker"))
}

// onWorker dry-runs what is done to a worker. Without one there is nothing to try it on: the permission depends on the worker's tag.
func (k *checker) onWorker(workers []nodes.Instance) {
	if len(workers) == 0 {
		k.out = append(k.out, nodes.Check{Name: "ec2:TerminateInstances", OK: true, Detail: "not tried: no worker runs"})
		return
	}
	id := workers[0].ID
	_, err := k.api.EC2.TerminateInstances(k.ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}, DryRun: aws.Bool(true)})
	k.add("ec2:TerminateInstances", permitted(err), grant("ec2:TerminateInstances")+" on instances with tag "+k.c.clusterTag().String(), "would succeed for %s", id)
	_, err = k.api.EC2.GetConsoleOutput(k.ctx, &ec2.GetConsoleOutputInput{InstanceId: &id, DryRun: aws.Bool(true)})
	k.add("ec2:GetConsoleOutput", permitted(err), grant("ec2:GetConsoleOutput")+"; without it nodes that don't join can't be diagnosed", "would succeed for %s", id)
}

func (k *checker) join() {
	switch k.c.UserData {
	case "", UserDataK3s:
		data, err := UserData(k.c.Join)
		k.add("join settings", err, "correct K3S_URL and K3S_TOKEN_REF", "nodes join %s, by the token in %s, which their own role must be allowed to read; %d bytes of user data", k.c.Join.Server, k.c.Join.TokenRef, len(data))
	case UserDataTemplate:
		k.out = append(k.out, nodes.Check{Name: "join settings", OK: true, Detail: "those of the launch template; node names must be instance IDs"})
	default:
		data, err := k.userData(k.ctx, k.c.UserData)
		k.add("join settings", err, "allow Muster's role to read it", "%d bytes of user data in %s", len(data), k.c.UserData)
	}
}
