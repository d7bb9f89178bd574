package ec2

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Join says how a node joins its K3s cluster.
type Join struct {
	Server   string // https URL of the K3s server
	TokenRef string // reference of the agent token, which the node fetches at boot with its own role
	Version  string // K3s version to install; "": what the image has, else the stable channel
	Args     string // more arguments of `k3s agent`
	Labels   string // that the node is given, beside those of its zone, region and type: NAME=VALUE,...
	Taints   string // that the node is given: KEY=VALUE:EFFECT,...
}

// joinScript is the user data; its first lines set the values that differ.
//
//go:embed join.sh
var joinScript string

const joinScheme = "k3s:"

var (
	k3sVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([a-z0-9.-]*)?\+k3s[0-9]+$`)
	nodeExtras = regexp.MustCompile(`^[A-Za-z0-9_./:=,-]*$`)
	agentArgs  = regexp.MustCompile(`^[A-Za-z0-9 _./:=,@+-]*$`)
)

func (j Join) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	u, err := url.Parse(j.Server)
	check(err == nil && u.Scheme == "https" && u.Host != "" && !strings.ContainsAny(j.Server, "\r\n'\""), "K3S_URL", j.Server,
		"write the https URL of the K3s server, for example https://10.0.0.10:6443")
	ref, err := ParseRef(j.TokenRef)
	if err != nil && looksLikeToken(j.TokenRef) {
		out = append(out, setting.Problem{Setting: "K3S_TOKEN_REF", Value: "[redacted]", Fix: "this is a token itself: store it in SSM or Secrets Manager, replace it, and write its reference, for example ssm:/muster/prod/agent-token"})
	} else {
		check(err == nil && (ref.Version == "" || ref.Service == "ssm"), "K3S_TOKEN_REF", j.TokenRef,
			"write the reference of the agent token, for example ssm:/muster/prod/agent-token or secretsmanager:muster/agent-token")
	}
	check(j.Version == "" || k3sVersion.MatchString(j.Version), "K3S_VERSION", j.Version, "write a release of K3s, for example v1.36.3+k3s1")
	check(agentArgs.MatchString(j.Args), "K3S_AGENT_ARGS", j.Args, "use letters, digits and _./:=,@+- only; quotes and line breaks are not supported")
	return append(out, j.labelProblems()...)
}

// labelProblems are those of labels and taints with which K3s would not start, or that would not reach the node.
func (j Join) labelProblems() []setting.Problem {
	var out []setting.Problem
	for _, of := range []struct{ env, value, flag string }{{"NODE_LABELS", j.Labels, "--node-label"}, {"NODE_TAINTS", j.Taints, "--node-taint"}} {
		switch {
		case of.value == "":
		case !nodeExtras.MatchString(of.value):
			out = append(out, setting.Problem{Setting: of.env, Value: of.value, Fix: "use letters, digits and _./:=,- only"})
		case hasFlag(j.Args, of.flag):
			out = append(out, setting.Problem{Setting: of.env, Value: of.value, Fix: "move what K3S_AGENT_ARGS gives by " + of.flag +
				" into " + of.env + ": as an argument it replaces all that the user data writes into K3s' configuration"})
		}
	}
	for _, l := range split(j.Labels) {
		name, _, _ := strings.Cut(l, "=")
		switch {
		case ownLabels[name]:
			out = append(out, setting.Problem{Setting: "NODE_LABELS", Value: l, Fix: "leave it out: every node gets this label from its instance"})
		case reserved(name):
			out = append(out, setting.Problem{Setting: "NODE_LABELS", Value: l, Fix: "choose a name outside of kubernetes.io and k8s.io: a kubelet does not start with a label of these, " +
				"except in node.kubernetes.io and kubelet.kubernetes.io"})
		}
	}
	return out
}

// ownLabels are those that the kubelet and Muster's user data set.
var ownLabels = map[string]bool{
	"kubernetes.io/hostname": true, "kubernetes.io/os": true, "kubernetes.io/arch": true, "node.kubernetes.io/instance-type": true,
	"topology.kubernetes.io/zone": true, "topology.kubernetes.io/region": true,
}

// reserved reports whether a label is in a namespace of which a kubelet may not label itself.
func reserved(name string) bool {
	prefix, _, ok := strings.Cut(name, "/")
	within := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	return ok && (within("kubernetes.io") || within("k8s.io")) && !within("node.kubernetes.io") && !within("kubelet.kubernetes.io")
}

// hasFlag reports whether arguments have a flag, as --flag value or --flag=value.
func hasFlag(args, flag string) bool {
	return slices.ContainsFunc(strings.Fields(args), func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}

// split returns the parts of a comma-separated list, none of an empty one.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// extras writes labels and taints as the user data reads them, always in the same order.
func extras(p nodes.Policy) (labels, taints string) {
	var l, t []string
	for _, name := range slices.Sorted(maps.Keys(p.NodeLabels)) {
		l = append(l, name+"="+p.NodeLabels[name])
	}
	for _, taint := range p.NodeTaints {
		t = append(t, taint.String())
	}
	slices.Sort(t)
	return strings.Join(l, ","), strings.Join(t, ",")
}

// looksLikeToken reports whether a person has put the token where its reference belongs; it must not be printed then.
func looksLikeToken(s string) bool {
	return strings.Contains(s, "::") || len(s) >= 32 && !strings.ContainsAny(s, ":/")
}

// Ref returns the reference of the user data by which a node joins: everything that the script depends on. It holds no secret.
func (j Join) Ref() string {
	v := url.Values{}
	for key, value := range map[string]string{"server": j.Server, "token": j.TokenRef, "version": j.Version, "args": j.Args, "labels": j.Labels, "taints": j.Taints} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return joinScheme + v.Encode() // sorted
}

// ParseJoin reads what Ref wrote.
func ParseJoin(ref string) (Join, error) {
	text, ok := strings.CutPrefix(ref, joinScheme)
	if !ok {
		return Join{}, fmt.Errorf("%.80q does not begin with %s", ref, joinScheme)
	}
	v, err := url.ParseQuery(text)
	if err != nil {
		return Join{}, fmt.Errorf("reading the user data's reference: %w", err)
	}
	j := Join{Server: v.Get("server"), TokenRef: v.Get("token"), Version: v.Get("version"), Args: v.Get("args"), Labels: v.Get("labels"), Taints: v.Get("taints")}
	if err := setting.Problems(j.problems(), nil); err != nil {
		return Join{}, fmt.Errorf("reading the user data's reference: %w", err)
	}
	return j, nil
}

// UserData returns the script by which a node joins: it takes the instance's ID for its name, so that a name is never used twice
// (K3s remembers the password of each name and refuses another node that comes by it), sets provider ID and zone label from the
// instance metadata service (version 2), and reads the agent token with the node's own role. The same Join always gives the same
// script, which a repeated launch depends on.
func UserData(j Join) (string, error) {
	if err := setting.Problems(j.problems(), nil); err != nil {
		return "", err
	}
	ref, err := ParseRef(j.TokenRef)
	if err != nil {
		return "", err
	}
	name := ref.Name
	if ref.Version != "" {
		name += ":" + ref.Version
	}
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	for _, v := range [][2]string{
		{"server", j.Server}, {"token_service", ref.Service}, {"token_name", name}, {"k3s_version", j.Version}, {"agent_args", j.Args},
		{"node_labels", j.Labels}, {"node_taints", j.Taints},
	} {
		fmt.Fprintf(&b, "%s='%s'\n", v[0], v[1]) // none of them can hold a quote
	}
	b.WriteString(joinScript)
	if b.Len() > largestUserData {
		return "", errors.New("the user data is larger than 16 KB")
	}
	return b.String(), nil
}

const largestUserData = 16 << 10
