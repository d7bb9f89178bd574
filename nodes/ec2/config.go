package ec2

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Tag is a tag of a resource, written KEY=VALUE.
type Tag struct{ Key, Value string }

// String returns KEY=VALUE.
func (t Tag) String() string { return t.Key + "=" + t.Value }

// The tags that Muster gives an instance besides the cluster's and Name.
const (
	ActionTag  = "muster.dev/action"        // ID of the action that launched it
	PoolTag    = "muster.dev/pool"          // pool that it was launched in; absent without pools
	HashTag    = "muster.dev/template-hash" // hash of the template, labels and taints that it was launched by
	OrdinalTag = "muster.dev/ordinal"       // which of the action's instances it is, from 0
)

// Config says where and how workers run.
type Config struct {
	Cluster    string // name of the cluster; "" if ClusterTag tells its instances apart
	ClusterTag Tag    // of the cluster's instances; zero: muster.dev/cluster=Cluster
	ServerTag  Tag    // of K3s servers, which are never touched; zero: muster.dev/role=control-plane

	SubnetIDs []string // subnets in which to launch
	SubnetTag Tag      // or the tag by which to find them; zero and no SubnetIDs: ClusterTag

	LaunchTemplate        string // ID (lt-...) or name; "": AMI, SecurityGroups and InstanceProfile say it
	LaunchTemplateVersion string // a number
	AMI                   string // image; "": the launch template's
	SecurityGroups        []string
	InstanceProfile       string // name; the role by which nodes read their token

	UserData string // UserDataK3s, UserDataTemplate or a reference: ssm:NAME:VERSION, secretsmanager:NAME#VERSION
	Join     Join   // with UserDataK3s

	Prices string // PricesTable or PricesAWS; "": PricesTable

	Queue string // URL of the SQS queue with interruption events; "": none is polled

	Pools []nodes.Pool // kinds of nodes, each with launch settings of its own; none: one kind, by the settings above

	InstanceTypes []string // that will be launched, for Check
	Spot          bool     // whether Spot will be used, for Check

	policy nodes.Policy // what pools leave to the settings

	Region    string            // "": as the SDK finds it
	Endpoints map[string]string // URL by service (ec2, pricing, ssm, secretsmanager, sqs, sts; "" for all); nil: AWS's
}

// Where an instance's user data comes from.
const (
	UserDataK3s      = "k3s"      // the script of this package joins a K3s cluster
	UserDataTemplate = "template" // the launch template's own
)

// Settings lists the settings of this package. CLUSTER, INSTANCE_TYPES and SPOT are nodes' and read as well; so are the SDK's own
// AWS_REGION, AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_EC2, _PRICING, _SSM, _SECRETS_MANAGER, _SQS and _STS.
func Settings() []setting.Info { return setting.Describe(settings) }

var settings = []setting.Setting[Config]{
	setting.New("CLUSTER_TAG", "", "tag of the cluster's instances, KEY=VALUE; default muster.dev/cluster=CLUSTER", tag(func(c *Config) *Tag { return &c.ClusterTag })),
	setting.New("CONTROL_PLANE_TAG", "muster.dev/role=control-plane", "tag of K3s servers, which are never touched", tag(func(c *Config) *Tag { return &c.ServerTag })),
	setting.New("SUBNET_IDS", "", "subnets in which to launch", setting.List(func(c *Config) *[]string { return &c.SubnetIDs })),
	setting.New("SUBNET_TAG", "", "or the tag of those subnets, KEY=VALUE; default CLUSTER_TAG", tag(func(c *Config) *Tag { return &c.SubnetTag })),
	setting.New("LAUNCH_TEMPLATE", "", "launch template, by ID or name", setting.Text(func(c *Config) *string { return &c.LaunchTemplate })),
	setting.New("LAUNCH_TEMPLATE_VERSION", "", "version number of the launch template", setting.Text(func(c *Config) *string { return &c.LaunchTemplateVersion })),
	setting.New("AMI_ID", "", "image; default the launch template's", setting.Text(func(c *Config) *string { return &c.AMI })),
	setting.New("SECURITY_GROUP_IDS", "", "security groups; default the launch template's", setting.List(func(c *Config) *[]string { return &c.SecurityGroups })),
	setting.New("INSTANCE_PROFILE", "", "name of the nodes' instance profile; default the launch template's", setting.Text(func(c *Config) *string { return &c.InstanceProfile })),
	setting.New("USER_DATA", UserDataK3s, "k3s: join K3S_URL; template: the launch template's; or ssm:NAME:VERSION, secretsmanager:NAME#VERSION", setting.Text(func(c *Config) *string { return &c.UserData })),
	setting.New("K3S_URL", "", "URL of the K3s server that nodes join", setting.URL(func(c *Config) *string { return &c.Join.Server })),
	setting.New("K3S_TOKEN_REF", "", "where nodes read the agent token at boot: ssm:NAME or secretsmanager:NAME", setting.Text(func(c *Config) *string { return &c.Join.TokenRef })),
	setting.New("K3S_VERSION", "", "K3s version to install, for example v1.36.3+k3s1; default what the image has, else the stable channel", setting.Text(func(c *Config) *string { return &c.Join.Version })),
	setting.New("K3S_AGENT_ARGS", "", "more arguments of `k3s agent`", setting.Text(func(c *Config) *string { return &c.Join.Args })),
	setting.New("PRICES", PricesTable, "aws: current prices, On-Demand by the AWS Price List, Spot by zone; table: INSTANCE_TABLE alone", setting.Text(func(c *Config) *string { return &c.Prices })),
	setting.New("INTERRUPTION_QUEUE", "", "URL of the SQS queue with interruption events, for the daemon", setting.URL(func(c *Config) *string { return &c.Queue })),
}

func tag(f func(*Config) *Tag) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return nil
		}
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return fmt.Errorf("write KEY=VALUE, for example kubernetes.io/cluster/prod=owned")
		}
		*f(c) = Tag{key, value}
		return nil
	}
}

// ConfigFromEnv reads the configuration from the environment that lookup stands for. The error is a *setting.Error that lists
// every wrong setting at once.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	c := connectionFromEnv(lookup)
	policy, _ := nodes.PolicyFromEnv(lookup) // what is wrong with it, nodes reports
	c.Cluster, c.InstanceTypes, c.Spot = policy.Cluster, policy.InstanceTypes, policy.Spot
	c.Join.Labels, c.Join.Taints = extras(policy)
	c.Pools, c.policy = policy.Pools, policy
	err := setting.Parse(&c, settings, lookup, Config.problems)
	return c, err
}

// connectionFromEnv reads what clients of AWS are made of.
func connectionFromEnv(lookup setting.Lookup) Config {
	var c Config
	c.Region, _ = lookup("AWS_REGION")
	for service, env := range endpointEnvs {
		if v, ok := lookup(env); ok && v != "" {
			if c.Endpoints == nil {
				c.Endpoints = map[string]string{}
			}
			c.Endpoints[service] = v
		}
	}
	return c
}

// endpointEnvs are the SDK's variables for other endpoints than AWS's, by service.
var endpointEnvs = map[string]string{
	"": "AWS_ENDPOINT_URL", "ec2": "AWS_ENDPOINT_URL_EC2", "ssm": "AWS_ENDPOINT_URL_SSM", "sqs": "AWS_ENDPOINT_URL_SQS",
	"sts": "AWS_ENDPOINT_URL_STS", "pricing": "AWS_ENDPOINT_URL_PRICING", "secretsmanager": "AWS_ENDPOINT_URL_SECRETS_MANAGER",
}

// Validate returns nil or a *setting.Error that lists everything that is wrong with c, each with its fix.
func (c Config) Validate() error { return setting.Problems(c.problems(), nil) }

var (
	amiID     = regexp.MustCompile(`^ami-[0-9a-f]+$`)
	subnetID  = regexp.MustCompile(`^subnet-[0-9a-z-]+$`)
	groupID   = regexp.MustCompile(`^sg-[0-9a-f]+$`)
	versionNo = regexp.MustCompile(`^[1-9][0-9]*$`)
)

func (c Config) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	check(c.Cluster != "" || c.ClusterTag.Key != "", "CLUSTER_TAG", c.ClusterTag.Key,
		"set CLUSTER, or the tag that tells this cluster's instances from others, for example kubernetes.io/cluster/prod=owned")
	for _, id := range c.SubnetIDs {
		check(subnetID.MatchString(id), "SUBNET_IDS", id, "write subnet IDs separated by commas, for example subnet-0a1b2c3d4e5f60718")
	}
	check(len(c.SubnetIDs) == 0 || c.SubnetTag.Key == "", "SUBNET_TAG", c.SubnetTag.String(), "set SUBNET_IDS or SUBNET_TAG, not both")
	check(c.Prices == "" || c.Prices == PricesTable || c.Prices == PricesAWS, "PRICES", c.Prices, "write aws, or table for the table of instance types alone")
	out = append(out, c.launchProblems()...)
	if c.Queue != "" {
		u, err := url.Parse(c.Queue)
		check(err == nil && strings.Trim(u.Path, "/") != "", "INTERRUPTION_QUEUE", c.Queue, "write the queue's URL, for example https://sqs.eu-central-1.amazonaws.com/123456789012/muster")
	}
	return out
}

// launchProblems are those of what instances boot from: of each pool, if there are some, else of the settings alone.
func (c Config) launchProblems() []setting.Problem {
	if len(c.Pools) > 0 {
		return c.poolProblems()
	}
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	check(c.LaunchTemplate != "" || c.AMI != "", "LAUNCH_TEMPLATE", "", "name a launch template, or an image by AMI_ID")
	check(c.AMI == "" || amiID.MatchString(c.AMI), "AMI_ID", c.AMI, "write the ID of an image, for example ami-0a1b2c3d4e5f60718")
	check((c.LaunchTemplate == "") == (c.LaunchTemplateVersion == "") && (c.LaunchTemplateVersion == "" || versionNo.MatchString(c.LaunchTemplateVersion)),
		"LAUNCH_TEMPLATE_VERSION", c.LaunchTemplateVersion, "write the number of a version of LAUNCH_TEMPLATE; $Latest and $Default can change between a launch and its repetition")
	for _, id := range c.SecurityGroups {
		check(groupID.MatchString(id), "SECURITY_GROUP_IDS", id, "write the IDs of security groups separated by commas, for example sg-0a1b2c3d4e5f60718")
	}
	check(c.LaunchTemplate != "" || len(c.SecurityGroups) > 0, "SECURITY_GROUP_IDS", "", "without LAUNCH_TEMPLATE nodes need security groups in which they reach the K3s server")
	return append(out, c.userDataProblems()...)
}

func (c Config) userDataProblems() []setting.Problem {
	var out []setting.Problem
	switch {
	case c.UserData == UserDataK3s:
		out = c.Join.problems()
		if c.LaunchTemplate == "" && c.InstanceProfile == "" {
			out = append(out, setting.Problem{Setting: "INSTANCE_PROFILE", Fix: "without LAUNCH_TEMPLATE nodes need an instance profile by which they read K3S_TOKEN_REF"})
		}
	case c.UserData == UserDataTemplate && c.LaunchTemplate == "":
		out = append(out, setting.Problem{Setting: "USER_DATA", Value: c.UserData, Fix: "set LAUNCH_TEMPLATE, whose user data it means"})
	case c.UserData == UserDataTemplate:
	default:
		if ref, err := ParseRef(c.UserData); err != nil || ref.Version == "" {
			out = append(out, setting.Problem{Setting: "USER_DATA", Value: c.UserData, Fix: "write k3s, template, ssm:NAME:VERSION or secretsmanager:NAME#VERSION; the version makes a repeated launch the same"})
		}
	}
	return out
}

// clusterTag returns the tag by which the cluster's instances are told apart.
func (c Config) clusterTag() Tag {
	if c.ClusterTag.Key != "" {
		return c.ClusterTag
	}
	return Tag{"muster.dev/cluster", c.Cluster}
}

func (c Config) serverTag() Tag {
	if c.ServerTag.Key != "" {
		return c.ServerTag
	}
	return Tag{"muster.dev/role", "control-plane"}
}

func (c Config) subnetTag() Tag {
	if c.SubnetTag.Key != "" {
		return c.SubnetTag
	}
	return c.clusterTag()
}

// Template returns what new instances boot from, pinned. It goes into nodes.Config, and from there with each launch into the record,
// so that a launch is repeated as it was although the settings have changed.
func (c Config) Template() nodes.Template {
	t := nodes.Template{
		ID: c.LaunchTemplate, Version: c.LaunchTemplateVersion, ImageID: c.AMI,
		SecurityGroups: strings.Join(c.SecurityGroups, ","), InstanceProfile: c.InstanceProfile,
	}
	switch c.UserData {
	case "", UserDataK3s:
		t.UserDataRef = c.Join.Ref()
	case UserDataTemplate:
	default:
		t.UserDataRef = c.UserData
	}
	return t
}

// endpoint returns the URL of a service, "" for AWS's own.
func (c Config) endpoint(service string) string {
	return cmp.Or(c.Endpoints[service], c.Endpoints[""])
}

// types returns the instance types, each once.
func (c Config) types() []string {
	out := slices.Clone(c.InstanceTypes)
	slices.Sort(out)
	return slices.Compact(out)
}
