package ec2_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
)

func TestCheckFindsNothingWrongWhereNothingIs(t *testing.T) {
	r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b"} })
	checks := r.cloud.Check(t.Context())
	for _, c := range checks {
		if !c.OK || c.Detail == "" || c.Fix != "" {
			t.Errorf("%+v", c)
		}
	}
	if len(checks) != 14 {
		t.Errorf("%d checks: %+v", len(checks), checks)
	}
	if r.launched() != 0 || len(entries(r.w, sim.Terminated)) != 0 {
		t.Error("it changed something")
	}
}

func TestCheckNamesEveryMissingPermission(t *testing.T) {
	for permission, check := range map[string]string{
		"ec2:DescribeInstances": "ec2:DescribeInstances", "ec2:DescribeSubnets": "ec2:DescribeSubnets", "ec2:RunInstances": "ec2:RunInstances spot in subnet-a",
		"ec2:TerminateInstances": "ec2:TerminateInstances", "ec2:GetConsoleOutput": "ec2:GetConsoleOutput", "ec2:DescribeImages": "image",
		"ec2:DescribeInstanceStatus":         "ec2:DescribeInstanceStatus",
		"ec2:DescribeLaunchTemplateVersions": "launch template", "ec2:DescribeInstanceTypes": "instance types", "sts:GetCallerIdentity": "AWS credentials",
	} {
		r := open(t, func(s *setup) { s.sim.Workers = []string{"a", "b"} })
		r.api.Deny(permission)
		c := find(r.cloud.Check(t.Context()), check)
		if c.OK || c.Fix == "" || !strings.Contains(c.Detail, "not authorized") {
			t.Errorf("without %s: %+v", permission, c)
		}
	}
}

func TestCheckFindsWhatIsConfiguredWrong(t *testing.T) {
	for _, c := range []struct {
		check, detail string
		change        func(*setup)
	}{
		{"ec2:DescribeSubnets", "SUBNET_IDS", func(s *setup) { s.config.SubnetIDs = []string{"subnet-a", "subnet-zz"} }},
		{"ec2:DescribeSubnets", "none is available", func(s *setup) { s.config.SubnetTag = ec2.Tag{Key: "no", Value: "where"} }},
		{"availability zones", "one zone", func(s *setup) { s.config.SubnetIDs = []string{"subnet-a"} }},
		{"launch template", "does not exist", func(s *setup) { s.api.Templates = map[string]string{"lt-0a1b/6": "ami-1"} }},
		{"launch template: network interfaces", "has network interfaces", func(s *setup) { s.api.TemplateInterfaces = true }},
		{"image", "does not exist", func(s *setup) { s.config.AMI = "ami-2"; s.api.Images = []string{"ami-1"} }},
		{"instance types", "m6g.large can't run an image for x86_64", func(s *setup) { s.config.InstanceTypes = []string{"m6g.large"} }},
		{"instance types", "do not exist", func(s *setup) { s.config.InstanceTypes = []string{"large"} }},
		{"join settings", "ParameterNotFound", func(s *setup) { s.config.UserData = "ssm:/muster/user-data:3" }},
	} {
		got := find(open(t, c.change).cloud.Check(t.Context()), c.check)
		if got.OK || !strings.Contains(got.Detail, c.detail) || got.Fix == "" {
			t.Errorf("%s: %+v", c.detail, got)
		}
	}
}

func find(checks []nodes.Check, name string) nodes.Check {
	i := slices.IndexFunc(checks, func(c nodes.Check) bool { return c.Name == name })
	if i < 0 {
		return nodes.Check{}
	}
	return checks[i]
}
