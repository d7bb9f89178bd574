package ec2

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/muster-dev/muster/setting"
)

// Join says how a node joins its K3s cluster.
type Join struct {
	Server   string // https URL of the K3s server
	TokenRef string // reference of the agent token, which the node fetches at boot with its own role
	Version  string // K3s version to install; "": what the image has, else the stable channel
	Args     string // more arguments of `k3s agent`
}

// joinScript is the user data; its first lines set the values that differ.
//
//go:embed join.sh
var joinScript string

const joinScheme = "k3s:"

var (
	k3sVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([a-z0-9.-]*)?\+k3s[0-9]+$`)
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
	return out
}

// looksLikeToken tells whether a person has put the token where its reference belongs; it must not be printed then.
func looksLikeToken(s string) bool {
	return strings.Contains(s, "::") || len(s) >= 32 && !strings.ContainsAny(s, ":/")
}

// Ref returns the reference of the user data by which a node joins: everything that the script depends on. It holds no secret.
func (j Join) Ref() string {
	v := url.Values{}
	for key, value := range map[string]string{"server": j.Server, "token": j.TokenRef, "version": j.Version, "args": j.Args} {
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
		return Join{}, fmt.Errorf("reading the user data's reference, %w", err)
	}
	j := Join{Server: v.Get("server"), TokenRef: v.Get("token"), Version: v.Get("version"), Args: v.Get("args")}
	if err := setting.Problems(j.problems(), nil); err != nil {
		return Join{}, fmt.Errorf("reading the user data's reference, %w", err)
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
