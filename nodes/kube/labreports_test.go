package kube_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/kube"
)

// TestReportsOnARealControlPlane reads by kubectl what Muster shows, as its service account with the documented role, of pods that wait:
// before a node is launched, while it is on its way, and when MAX_WORKERS is reached.
func TestReportsOnARealControlPlane(t *testing.T) {
	s := newStory(t)
	if _, err := s.Kubectl(t.Context(), "apply", "-f", filepath.Join("..", "..", "deploy", "kubernetes", "nodes", "pools.yaml")); err != nil {
		t.Fatal(err)
	}
	// Of a pool that is not configured any more.
	former := filepath.Join(t.TempDir(), "former.yaml")
	write(t, former, "apiVersion: muster.dev/v1alpha1\nkind: Pool\nmetadata: {name: former}\n")
	labtest.Eventually(t, "a pool that was shown before", func() error {
		_, err := s.Kubectl(t.Context(), "apply", "-f", former)
		return err
	})
	// Several ticks, also on a slow machine: the first may come before all metrics are there, and then no launch can be predicted.
	s.parts.Policy.PendingUpFor = 25 * time.Second
	s.reports(t)

	s.deploy(t, "default", 4, template("load", "", anywhere)) // two fit a worker's 4 CPUs
	s.scale(t, "load", 40)                                    // more than there could be room for, by PODS_PER_NODE
	pod := ""
	s.tick(t, "a pod waits", func() (err error) {
		pod, err = s.Kubectl(t.Context(), "get", "pods", "--field-selector=spec.nodeName=", "--output=jsonpath={.items[0].metadata.name}")
		return err
	})
	described := func(texts ...string) func() error {
		return func() error {
			text, err := s.Kubectl(t.Context(), "describe", "pod", pod)
			if err = errors.Join(err, has(text, texts...)); err == nil {
				t.Log(events(text))
			}
			return err
		}
	}
	s.tick(t, "the pod is told when a node will be launched", described("NotTriggerScaleUp", "PENDING_UP_SEC", "a node is launched at "))
	s.tick(t, "the pod is told of the launch", described("TriggeredScaleUp", "muster-nodes", "2 nodes are launched"))
	s.tick(t, "the pools are shown", func() error {
		text, err := s.Kubectl(t.Context(), "get", "pools")
		if strings.Contains(text, "former") {
			return errors.New("a pool that is not configured is shown")
		}
		return errors.Join(err, has(strings.Join(strings.Fields(text), " "), "NAME NODES READY JOINING SPOT CPU MEMORY LIMITS LAUNCH", "default 4 ", "no: MAX_WORKERS is 4"))
	})
	s.tick(t, "a pod that is left is told why", func() (err error) {
		list, err := s.Kubectl(t.Context(), "get", "pods", "--field-selector=spec.nodeName=", "--output=jsonpath={.items[*].metadata.name}")
		names := strings.Fields(list)
		if err != nil || len(names) != 32 { // 8 fit four workers
			return errors.Join(err, fmt.Errorf("%d wait", len(names)))
		}
		pod = names[0]
		return described("NotTriggerScaleUp", "MAX_WORKERS above 4", "no node is launched until that changes")()
	})
}

// TestNodeReportsOnARealControlPlane reads by kubectl what is told of nodes: of one that is kept, and of one whose drain begins, lasts several
// ticks, fails and is not begun again.
func TestNodeReportsOnARealControlPlane(t *testing.T) {
	s := newStory(t)
	s.reports(t)
	s.addWorker(t)
	workers := s.workers(t)
	kept, drained := workers[0], workers[1:]
	if _, err := s.Kubectl(t.Context(), "annotate", "node", kept, kube.KeepAnnotation+"=true"); err != nil {
		t.Fatal(err)
	}
	s.deploy(t, "default", 3, template("held", "", anywhere, finalized)) // one on each, with room for a second
	described := func(node string, texts ...string) error {
		text, err := s.Kubectl(t.Context(), "describe", "node", node)
		if err = errors.Join(err, has(text, texts...)); err == nil {
			t.Log(events(text))
		}
		return err
	}

	// Beside the tick, which drains for as long as it may: what is told must be there while the node is.
	seen := make(chan string, 1)
	go func() {
		for ctx := t.Context(); ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
			for _, name := range drained {
				if described(name, kube.ToBeDeletedTaint, "node.kubernetes.io/exclude-from-external-load-balancers=muster",
					"ScaleDown ", "muster-nodes", "it is drained and then terminated: IDLE") == nil {
					seen <- name
					return
				}
			}
		}
	}()
	s.machines.SetLoad(0.05)
	target := ""
	s.tick(t, "a drain has begun and failed, and its node says why it stays", func() error {
		if target == "" {
			select {
			case target = <-seen:
			default:
				return errors.New("no node says that it is drained")
			}
		}
		return described(target, "ScaleDownFailed", "it is kept: its scale-down ended: not drained within DRAIN_TIMEOUT_SEC", "pod default/held-")
	})
	s.tick(t, "the node that is kept says why", func() error {
		return described(kept, "DisruptionBlocked", "it is annotated against that")
	})
	for _, reason := range []string{"ScaleDown", "ScaleDownFailed"} {
		list, err := s.Kubectl(t.Context(), "get", "events", "--field-selector=involvedObject.kind=Node,involvedObject.name="+target+",reason="+reason, "--output=name")
		if got := len(strings.Fields(list)); err != nil || got != 1 {
			t.Errorf("%d events %s, %v", got, reason, err)
		}
	}
	if text, err := s.Kubectl(t.Context(), "describe", "node", target); err != nil || strings.Contains(text, kube.ToBeDeletedTaint) {
		t.Errorf("still marked, %v:\n%s", err, text)
	}
	s.release(t)
}

// reports has the plane show what it decides.
func (s *story) reports(t *testing.T) {
	t.Helper()
	d, err := new(connect.Deciders).For(s.parts.Policy)
	if err != nil {
		t.Fatal(err)
	}
	s.parts.Reporter = connect.Reporter{Cluster: s.cluster.(*kube.Cluster), Decider: d}
	if s.plane, err = nodes.New(s.parts); err != nil {
		t.Fatal(err)
	}
}

// events returns the part of a description that lists events.
func events(description string) string {
	_, text, _ := strings.Cut(description, "\nEvents:")
	return text
}

// has says which of some texts a text lacks.
func has(text string, want ...string) error {
	for _, w := range want {
		if !strings.Contains(text, w) {
			return fmt.Errorf("%q is not in\n%s", w, text)
		}
	}
	return nil
}
