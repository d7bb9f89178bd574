package connect

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
)

func TestDoctorComparesTheVersionsOfK3s(t *testing.T) {
	const server = "v1.36.0+k3s1"
	for _, tt := range []struct {
		name, data, version, node string
		fails                     string // "": nothing
	}{
		{"the server's", ec2.UserDataK3s, "v1.36.0+k3s1", server, ""},
		{"an older one", ec2.UserDataK3s, "v1.35.9+k3s2", "v1.35.9+k3s2", ""},
		{"a newer patch", ec2.UserDataK3s, "v1.36.4+k3s1", "v1.36.4+k3s1", ""},
		{"a newer one", ec2.UserDataK3s, "v1.37.0+k3s1", server, "K3S_VERSION is v1.37.0+k3s1"},
		{"not set, and nothing newer has joined", ec2.UserDataK3s, "", server, ""},
		{"not set, and a newer one has joined", ec2.UserDataK3s, "", "v1.37.1+k3s1", "node n1 runs v1.37.1+k3s1"},
		{"user data of others", ec2.UserDataTemplate, "v1.99.0+k3s1", server, ""},
		{"user data of others, and a newer one has joined", ec2.UserDataTemplate, "", "v1.37.1+k3s1", "node n1"},
		{"a node that does not say", ec2.UserDataK3s, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := ec2.Config{UserData: tt.data, Join: ec2.Join{Version: tt.version}}
			got := checkK3sVersion(c, kube.Versions{Server: server, Nodes: map[string]string{"n0": server, "n1": tt.node}})
			if got.OK != (tt.fails == "") || !strings.Contains(got.Detail, tt.fails) {
				t.Errorf("%+v", got)
			}
			if !got.OK && !strings.Contains(got.Fix, "K3S_VERSION="+server) {
				t.Errorf("the fix is %q", got.Fix)
			}
		})
	}
}
