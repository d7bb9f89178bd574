package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Versions are what the servers and the kubelets of a cluster run, as Kubernetes writes it: v1.36.3+k3s1.
type Versions struct {
	Server string
	Nodes  map[string]string // by node; "" of one that does not say
}

// Versions asks the API for its own version and for those of all kubelets.
func (c *Cluster) Versions(ctx context.Context) (Versions, error) {
	server, err := c.serverVersion(ctx)
	if err != nil {
		return Versions{}, fmt.Errorf("asking for the server's version: %w%s", err, hint(err))
	}
	out := Versions{Server: server}
	err = pager[*corev1.NodeList]{
		c: c, what: "listing nodes", of: c.core, name: "nodes",
		begin: func() { out.Nodes = map[string]string{} },
		add: func(l *corev1.NodeList) error {
			for i := range l.Items {
				out.Nodes[l.Items[i].Name] = l.Items[i].Status.NodeInfo.KubeletVersion
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *corev1.NodeList { return &corev1.NodeList{} })
	return out, err
}

func (c *Cluster) serverVersion(ctx context.Context) (string, error) {
	r, cancel, err := c.request(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	body, err := c.core.Get().AbsPath("/version").MaxRetries(0).DoRaw(r)
	if err != nil {
		return "", err
	}
	var server struct {
		GitVersion string `json:"gitVersion"`
	}
	err = json.Unmarshal(body, &server)
	return server.GitVersion, err
}

// TooNew reports whether a kubelet's version is too new for a server's: its minor version must not be above the server's
// (https://kubernetes.io/releases/version-skew-policy/#kubelet). False if one of them can't be read.
func TooNew(kubelet, server string) bool {
	k, err1 := version.ParseGeneric(kubelet)
	s, err2 := version.ParseGeneric(server)
	return err1 == nil && err2 == nil && (k.Major() > s.Major() || k.Major() == s.Major() && k.Minor() > s.Minor())
}
