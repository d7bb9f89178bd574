package ec2

import (
	"cmp"
	"fmt"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// settingOf names the setting that a field of a pool's launch stands in for.
var settingOf = map[string]string{
	"LAUNCH_TEMPLATE": "launch.template", "LAUNCH_TEMPLATE_VERSION": "launch.templateVersion", "AMI_ID": "launch.ami", "SECURITY_GROUP_IDS": "launch.securityGroups",
	"INSTANCE_PROFILE": "launch.instanceProfile", "USER_DATA": "launch.userData", "K3S_AGENT_ARGS": "launch.agentArgs", "NODE_LABELS": "labels", "NODE_TAINTS": "taints",
}

// In returns the configuration as it is for the instances of one pool. What the pool leaves out is as the settings say; a launch template
// of its own brings its own version.
func (c Config) In(pool nodes.Pool) Config {
	p := c.policy
	p.Pools = c.Pools
	p = p.In(pool.Name)
	c.Pools = nil
	c.InstanceTypes, c.Spot = p.InstanceTypes, p.Spot
	c.Join.Labels, c.Join.Taints = extras(p)
	l := pool.Launch
	if l.Template != "" {
		c.LaunchTemplate, c.LaunchTemplateVersion = l.Template, ""
	}
	c.LaunchTemplateVersion = cmp.Or(l.TemplateVersion, c.LaunchTemplateVersion)
	c.AMI, c.InstanceProfile = cmp.Or(l.AMI, c.AMI), cmp.Or(l.InstanceProfile, c.InstanceProfile)
	if len(l.SecurityGroups) > 0 {
		c.SecurityGroups = l.SecurityGroups
	}
	c.UserData, c.Join.Args = cmp.Or(l.UserData, c.UserData), cmp.Or(l.AgentArgs, c.Join.Args)
	return c
}

// Templates returns what the instances of each pool boot from, by the pool's name; nil without pools.
func (c Config) Templates() map[string]nodes.Template {
	if len(c.Pools) == 0 {
		return nil
	}
	out := map[string]nodes.Template{}
	for _, pool := range c.Pools {
		out[pool.Name] = c.In(pool).Template()
	}
	return out
}

// poolProblems are those of what each pool boots from. What is wrong in a setting that several pools leave as it is, is told once.
func (c Config) poolProblems() []setting.Problem {
	var out []setting.Problem
	told := map[setting.Problem]bool{}
	for _, pool := range c.Pools {
		if pool.Name == "" { // which is told already
			continue
		}
		for _, p := range c.In(pool).launchProblems() {
			if field := settingOf[p.Setting]; field != "" {
				p.Setting = fmt.Sprintf("%s[%s].%s", nodes.PoolsSetting, pool.Name, field)
			}
			if !told[p] {
				told[p] = true
				out = append(out, p)
			}
		}
	}
	return out
}
