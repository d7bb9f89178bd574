package kube_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
)

var eviction = kubeapi.Use{Verb: "create", Resource: "pods", Subresource: "eviction"}

// evicted returns the names of the pods that were evicted, in order.
func evicted(w *sim.Simulator) []string {
	var out []string
	for _, e := range w.Ledger() {
		if e.Kind == sim.Evicted {
			out = append(out, e.Detail)
		}
	}
	slices.Sort(out)
	return out
}

func TestADrainWaitsForABudgetAndGoesOnWhenItIsReleased(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	w.SetBudgets(sim.Budget{Namespace: "default", Name: "two", Prefix: "db", MinAvailable: 2})
	w.AddPodOn(first, sim.PodSpec{Name: "default/db-0"})
	w.AddPodOn(first, sim.PodSpec{Name: "default/db-1"})
	w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
	cordon(t, c, first, "me")
	p := drain(t, w, c, first, 20*time.Second)
	if p.Done || p.Left != 2 || !strings.Contains(p.Why, "default/db-0: The disruption budget two needs 2 healthy pods and has 2") {
		t.Errorf("%+v", p)
	}
	w.SetBudgets(sim.Budget{Namespace: "default", Name: "two", Prefix: "db", MinAvailable: 1})
	begin := w.Clock().Now()
	if p := drain(t, w, c, first, time.Minute); !p.Done {
		t.Errorf("%+v", p)
	}
	// One at a time: the second goes when the first runs elsewhere.
	if took := w.Clock().Now().Sub(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := evicted(w); !slices.Equal(got, []string{"default/db-0", "default/db-1", "default/web"}) {
		t.Errorf("evicted %v", got)
	}
}

func TestAPodUnderTwoBudgetsBlocksADrainAtOnceAndIsPassedOverOnAWarning(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	w.SetBudgets(sim.Budget{Namespace: "default", Name: "one", Prefix: "db"}, sim.Budget{Namespace: "default", Name: "other", Prefix: "db-"})
	w.AddPodOn(first, sim.PodSpec{Name: "default/db-0"})
	w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
	cordon(t, c, first, "me")
	if n := node(t, c, first); !strings.Contains(n.Blocker, "one and other") {
		t.Errorf("the view says %q", n.Blocker)
	}
	begin := w.Clock().Now()
	req := nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: begin.Add(time.Minute)}
	_, err := c.Drain(t.Context(), req)
	if why, blocked := nodes.IsDrainBlocked(err); !blocked || !strings.Contains(why, "default/db-0") || !strings.Contains(why, "more than one PodDisruptionBudget") {
		t.Errorf("got %v", err)
	}
	if took := w.Clock().Now().Sub(begin); took > 5*time.Second {
		t.Errorf("it took %s to give up", took)
	}
	req.SkipCritical = true
	if p, err := c.Drain(t.Context(), req); err != nil || !p.Done {
		t.Errorf("on a warning: %+v, %v", p, err)
	}
}

// TestAPodThatComesBackBlocksADrain: nothing keeps a pod that tolerates everything off the node that it was evicted from.
func TestAPodThatComesBackBlocksADrain(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	both := []nodes.Taint{{Key: kube.ToBeDeletedTaint, Effect: "NoSchedule"}, {Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}
	w.AddPodOn(first, sim.PodSpec{Name: "default/agent", Tolerates: both})
	cordon(t, c, first, "me")
	req := nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute), Since: w.Clock().Now()}
	if p, err := c.Drain(t.Context(), req); err != nil || !p.Done {
		t.Fatalf("the first time it is evicted as any other: %+v, %v", p, err)
	}

	if err := w.Clock().Sleep(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	w.AddPodOn(first, sim.PodSpec{Name: "default/agent-2", Tolerates: both})
	w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
	before := len(evicted(w))
	req.Until = w.Clock().Now().Add(time.Minute)
	_, err := c.Drain(t.Context(), req)
	if why, blocked := nodes.IsDrainBlocked(err); !blocked || !strings.Contains(why, "default/agent-2") || !strings.Contains(why, kube.ToBeDeletedTaint) {
		t.Errorf("got %v", err)
	}
	if got := evicted(w)[before:]; len(got) != 0 {
		t.Errorf("evicted %v", got)
	}
	req.SkipCritical = true
	if p, err := c.Drain(t.Context(), req); err != nil || !p.Done {
		t.Errorf("on a warning: %+v, %v", p, err)
	}
	if got := evicted(w)[before:]; !slices.Equal(got, []string{"default/web"}) {
		t.Errorf("on a warning: evicted %v", got)
	}
}

func TestAWarningSavesEveryPodThatMayBeEvicted(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	never := map[string]string{kube.DoNotEvictAnnotation: "true"}
	for _, p := range []sim.PodSpec{
		{Name: "kube-system/coredns"}, {Name: "default/pinned", Kube: sim.KubeTraits{Annotations: never}}, {Name: "default/bare", Kube: sim.KubeTraits{Owner: "none"}},
		{Name: "default/cache", Kube: sim.KubeTraits{LocalVolume: "emptyDir"}}, {Name: "default/critical", Critical: true}, {Name: "default/web"},
	} {
		w.AddPodOn(first, p)
	}
	cordon(t, c, first, "me")
	p, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute), SkipCritical: true})
	if err != nil || !p.Done {
		t.Errorf("%+v, %v", p, err)
	}
	if got := evicted(w); !slices.Equal(got, []string{"default/web"}) {
		t.Errorf("evicted %v", got)
	}
}

func TestSettingsLetBarePodsAndLocalStorageGo(t *testing.T) {
	w, _, c := start(t, kube.Rules{BarePods: kube.Evict, LocalStorage: kube.Evict}, "a", "b")
	w.AddPodOn(first, sim.PodSpec{Name: "default/bare", Kube: sim.KubeTraits{Owner: "none"}})
	w.AddPodOn(first, sim.PodSpec{Name: "default/cache", Kube: sim.KubeTraits{LocalVolume: "hostPath"}})
	cordon(t, c, first, "me")
	if n := node(t, c, first); n.Blocker != "" {
		t.Errorf("the view says %q", n.Blocker)
	}
	if p := drain(t, w, c, first, time.Minute); !p.Done || len(evicted(w)) != 2 {
		t.Errorf("%+v, %v", p, evicted(w))
	}
}

// TestALocalVolumeBehindAClaimIsLocalStorage: K3s' own provisioner makes such volumes. Elsewhere the pod would
// wait for its volume until somebody deletes it.
func TestALocalVolumeBehindAClaimIsLocalStorage(t *testing.T) {
	for name, tt := range map[string]struct {
		rules kube.Rules
		want  []string // evicted
	}{
		"it blocks":                    {},
		"unless the settings allow it": {kube.Rules{LocalStorage: kube.Evict}, []string{"default/db", "default/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, c := start(t, tt.rules, "a", "b")
			w.AddPodOn(first, sim.PodSpec{Name: "default/db", Kube: sim.KubeTraits{LocalVolume: "claim"}})
			w.AddPodOn(first, sim.PodSpec{Name: "default/web", Kube: sim.KubeTraits{VolumeZone: "a"}})
			blocks := len(tt.want) == 0
			if n := node(t, c, first); strings.Contains(n.Blocker, "pod default/db: volume data is local to the node") != blocks {
				t.Errorf("the view says %q", n.Blocker)
			}
			cordon(t, c, first, "me")

			req := nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute)}
			p, err := c.Drain(t.Context(), req)
			if why, blocked := nodes.IsDrainBlocked(err); blocked != blocks || blocks && !strings.Contains(why, "default/db") {
				t.Errorf("got %+v, %v", p, err)
			}
			if got := evicted(w); !slices.Equal(got, tt.want) {
				t.Errorf("evicted %v, want %v", got, tt.want)
			}

			if req.SkipCritical = true; blocks {
				if p, err := c.Drain(t.Context(), req); err != nil || !p.Done || !slices.Equal(evicted(w), []string{"default/web"}) {
					t.Errorf("on a warning: %+v, %v, evicted %v", p, err, evicted(w))
				}
			}
		})
	}
}

func TestFinishedAndStaticPodsAreLeftAlone(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	w.AddPodOn(first, sim.PodSpec{Name: "kube-system/helm-install-traefik", Kube: sim.KubeTraits{Owner: "Job", Phase: "Succeeded"}})
	w.AddPodOn(first, sim.PodSpec{Name: "kube-system/helm-install-other", Kube: sim.KubeTraits{Owner: "Job", Phase: "Failed"}})
	w.AddPodOn(first, sim.PodSpec{Name: "kube-system/static", Kube: sim.KubeTraits{Owner: "Node"}})
	if n := node(t, c, first); n.Blocker != "" || len(n.Pods) != 0 || n.Daemon.Pods != 1 {
		t.Errorf("the view says %+v", n)
	}
	if p := drain(t, w, c, first, time.Minute); !p.Done || len(evicted(w)) != 0 {
		t.Errorf("%+v, evicted %v", p, evicted(w))
	}
}

func TestAnEndingPodGetsLessGraceWhenTheTimeHasBecomeShort(t *testing.T) {
	w, api, c := start(t, kube.Rules{}, "a", "b")
	w.AddPodOn(first, sim.PodSpec{Name: "default/slow", Grace: 5 * time.Minute})
	cordon(t, c, first, "me")
	if p := drain(t, w, c, first, 5*time.Second); p.Done || !strings.Contains(p.Why, "pod default/slow: its end, told ") {
		t.Fatalf("%+v", p)
	}
	req := nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute), MaxGrace: 10 * time.Second}
	if p, err := c.Drain(t.Context(), req); err != nil || !p.Done {
		t.Errorf("%+v, %v", p, err)
	}
	if got := api.Used()[eviction]; got != 2 {
		t.Errorf("%d evictions, want the first and the shortened one", got)
	}
}

// replacing lets a pod come up elsewhere under its old name between the list and the eviction.
type replacing struct {
	w    *sim.Simulator
	once bool
}

func (r *replacing) Before(call string) error {
	if call == "kube.create pods/eviction" && !r.once {
		r.once = true
		r.w.RemovePods("default/db")
		r.w.AddPodOn(second, sim.PodSpec{Name: "default/db-0"})
	}
	return nil
}

func (r *replacing) After(_ string, err error) error { return err }

func TestAPodThatCameUpElsewhereUnderTheSameNameIsNotEvicted(t *testing.T) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a", "b"}})
	c := over(t, kubeapi.New(w.Client("kube", &replacing{w: w})), kube.Options{Clock: w.Clock()})
	w.AddPodOn(first, sim.PodSpec{Name: "default/db-0"})
	w.Advance(time.Second)
	cordon(t, c, first, "me")
	if p := drain(t, w, c, first, time.Minute); !p.Done {
		t.Errorf("%+v", p)
	}
	if got := evicted(w); len(got) != 0 {
		t.Errorf("evicted %v", got)
	}
}

func TestRefusalsOtherThanOfABudgetAreTriedAgain(t *testing.T) {
	for name, f := range map[string]kubeapi.Fault{
		"server error":    {Status: http.StatusInternalServerError, Message: "etcdserver: request timed out"},
		"busy":            {Status: http.StatusServiceUnavailable},
		"a webhook's no":  {Status: http.StatusForbidden, Message: `admission webhook "storage.example" denied the request: rebuilding`},
		"broken off":      {},
		"lost its answer": {After: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, api, c := start(t, kube.Rules{}, "a", "b")
			f.Use, f.Times = eviction, 2
			api.Fail(f)
			w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
			cordon(t, c, first, "me")
			if p := drain(t, w, c, first, time.Minute); !p.Done || len(evicted(w)) != 1 {
				t.Errorf("%+v, evicted %v", p, evicted(w))
			}
		})
	}
}

func TestARefusalIsNamedWhenTheTimeIsOver(t *testing.T) {
	w, api, c := start(t, kube.Rules{}, "a", "b")
	api.Fail(kubeapi.Fault{Use: eviction, Status: http.StatusForbidden, Message: `admission webhook "storage.example" denied the request: rebuilding`})
	w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
	cordon(t, c, first, "me")
	if p := drain(t, w, c, first, 10*time.Second); p.Done || !strings.Contains(p.Why, "default/web: admission webhook") {
		t.Errorf("%+v", p)
	}
}

func TestWithoutThePermissionToEvictADrainFailsAtOnceAndSaysWhatHelps(t *testing.T) {
	w, api, c := start(t, kube.Rules{}, "a", "b")
	api.Forbid(eviction)
	w.AddPodOn(first, sim.PodSpec{Name: "default/web"})
	cordon(t, c, first, "me")
	_, err := c.Drain(t.Context(), nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Minute)})
	if _, blocked := nodes.IsDrainBlocked(err); err == nil || blocked || !strings.Contains(err.Error(), "docs/nodes/deploy.md") {
		t.Errorf("got %v", err)
	}
}

func TestADrainEndsWithItsCaller(t *testing.T) {
	w, _, c := start(t, kube.Rules{}, "a", "b")
	w.AddPodOn(first, sim.PodSpec{Name: "default/stays", Stuck: true})
	ctx, cancel := w.Clock().WithDeadline(t.Context(), w.Clock().Now().Add(10*time.Second))
	defer cancel()
	p, err := c.Drain(ctx, nodes.DrainRequest{Node: node(t, c, first).NodeRef, Until: w.Clock().Now().Add(time.Hour)})
	if !errors.Is(err, context.DeadlineExceeded) || p.Done || p.Left != 1 || !strings.Contains(p.Why, "sim.muster.dev/stays") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestTheRequestsOfADrainDontGrowWithItsPods(t *testing.T) {
	looks := func(pods int) int {
		w, api, c := start(t, kube.Rules{}, "a", "b")
		for range pods {
			w.AddPodOn(first, sim.PodSpec{Name: "default/stays-" + string(rune('a'+pods)), Stuck: true})
		}
		drain(t, w, c, first, 20*time.Second)
		n := 0
		for use, times := range api.Used() {
			if use != eviction {
				n += times
			}
		}
		return n
	}
	if one, ten := looks(1), looks(10); ten > one+2 {
		t.Errorf("%d requests for one pod, %d for ten", one, ten)
	}
}
