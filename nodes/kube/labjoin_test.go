package kube_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
)

// shape is how nodes register themselves.
type shape func(in nodes.Instance, kubelet string) machine

// ours is what our user data makes of a node: it says which instance it is.
func ours(in nodes.Instance, kubelet string) machine {
	return machine{name: in.ID, zone: in.Zone, ip: in.PrivateIP, provider: "aws:///" + in.Zone + "/" + in.ID, kubelet: kubelet}
}

// stock is a K3s node without settings of its own: only its address ties it to the instance.
func stock(in nodes.Instance, kubelet string) machine {
	name := "ip-" + strings.ReplaceAll(in.PrivateIP, ".", "-")
	return machine{name: name, ip: in.PrivateIP, provider: "k3s://" + name, kubelet: kubelet}
}

// verification takes an instance through everything that can become of its joining. What counts is whether the instance's own node
// is Ready now.
func verification(t *testing.T, l *laboratory, register shape) {
	c := l.cluster(t, kube.Rules{})
	one := nodes.Instance{ID: "i-0aaa", Zone: "a", PrivateIP: "10.7.0.1", State: nodes.StateRunning}
	if register(one, "").name != one.ID { // both shapes run at the same time
		one.ID, one.PrivateIP = "i-0bbb", "10.7.0.2"
	}
	// worker returns what the node plane makes of an instance.
	worker := func(in nodes.Instance, others ...nodes.Instance) nodes.Worker {
		t.Helper()
		for _, w := range nodes.Match(append(others, in), view(t, c).Nodes) {
			if w.Instance.ID == in.ID {
				return w
			}
		}
		t.Fatalf("%s is no worker", in.ID)
		return nodes.Worker{}
	}
	becomes := func(what string, available bool) {
		t.Helper()
		labtest.Eventually(t, what, func() error {
			if w := worker(one); w.Available() != available || w.Node == nil {
				return errors.New("not yet")
			}
			return nil
		})
	}
	m := register(one, lab.KubeletNotReady)
	kubelet := func(does string) {
		t.Helper()
		if _, err := l.Kubectl(t.Context(), "label", "node", m.name, lab.KubeletLabel+"="+does, "--overwrite"); err != nil {
			t.Fatal(err)
		}
	}

	if w := worker(one); w.Node != nil || w.Available() {
		t.Errorf("never joined: %+v", w)
	}
	l.register(t, m)
	becomes("it joined and is not Ready", false)
	kubelet(lab.KubeletUp)
	becomes("Ready", true)
	kubelet(lab.KubeletNotReady)
	becomes("flapping, not Ready", false)
	kubelet(lab.KubeletUp)
	becomes("flapping, Ready", true)

	// The instance ends and its address goes to another, whose node must not count as the first one's.
	kubelet(lab.KubeletGone)
	becomes("joined, then gone", false)
	n := worker(one).Node
	if err := c.Remove(t.Context(), n.NodeRef); err != nil {
		t.Fatal(err)
	}
	two := one
	two.ID = one.ID + "2"
	l.register(t, register(two, lab.KubeletUp))
	ended := one
	ended.State, ended.PrivateIP = nodes.StateTerminated, ""
	labtest.Eventually(t, "the next instance with the same address is Ready", func() error {
		if !worker(two, ended).Available() {
			return errors.New("not yet")
		}
		return nil
	})
	if w := worker(ended, two); w.Node != nil {
		t.Errorf("an instance that has ended got the node of its address: %+v", w.Node)
	}
	if name := register(one, "").name; name == one.ID {
		if w := worker(one, two); w.Node != nil { // as long as the cloud lags and shows both with the address
			t.Errorf("an instance got the node of another with its address: %+v", w.Node)
		}
	}

	// Without the API nothing is known, and nothing is made up.
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := l.config
	away.APIURL, away.Timeout = "https://"+dead.Addr().String(), 300*time.Millisecond // it takes the connection and never answers
	defer dead.Close()
	if v, err := open(t, away).View(t.Context()); err == nil || len(v.Nodes) > 0 {
		t.Errorf("the API is away: %+v, %v", v, err)
	}
}
