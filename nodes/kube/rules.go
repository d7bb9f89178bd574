package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Action says what a drain does about a kind of pod.
type Action string

// The actions.
const (
	Abort Action = "abort" // such a pod blocks the drain, and keeps its node from being chosen
	Evict Action = "evict" // such a pod is evicted like any other
)

// Rules are the parts of a drain that settings decide.
type Rules struct {
	BarePods     Action // pods without a controller, which nothing starts again
	LocalStorage Action // pods with an emptyDir or hostPath volume, or a claim of a local one: their data ends with the node
}

// Annotations that Muster writes or reads. They are a protocol between versions: nodes carry them while Muster is upgraded.
const (
	// ClaimsAnnotation holds, on a node, the claims of those who cordoned it through Cordon, separated by commas.
	ClaimsAnnotation = "muster.dev/cordoned-by"
	// BeforeAnnotation, on a node, says that somebody else had cordoned it before the first claim.
	BeforeAnnotation = "muster.dev/cordoned-before"
	// KeepAnnotation, on a node, exempts it from scale-down.
	KeepAnnotation = "muster.dev/keep"
	// DoNotEvictAnnotation, on a pod, forbids its eviction and so the drain of its node.
	DoNotEvictAnnotation = "muster.dev/do-not-evict"
)

// What other autoscalers call the same, so that a cluster that comes from one of them is understood.
const (
	keepLikeClusterAutoscaler  = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	evictLikeClusterAutoscaler = "cluster-autoscaler.kubernetes.io/safe-to-evict" // "false" forbids
	likeKarpenter              = "karpenter.sh/do-not-disrupt"                    // on nodes and pods
)

const (
	systemNamespace  = "kube-system"
	criticalPriority = 2_000_000_000 // from here on priorities are the system's own
)

// role is what a pod is to a drain.
type role int

const (
	apart    role = iota // of a DaemonSet, or a static pod: it belongs to the node
	finished             // it runs no more and holds no volume; it goes with its node
	ending               // its deletion has begun: it is waited for
	moving               // it is to be evicted
	blocking             // it must not be evicted
)

// isLocal says that a pod blocks because of a volume.
func isLocal(pod, volume string) string {
	return fmt.Sprintf("pod %s: volume %s is local to the node (DRAIN_LOCAL_STORAGE=%s)", pod, volume, Abort)
}

// judge tells what a pod is to a drain, and of one that blocks why. The order matters: a DaemonSet's pod is the node's whatever its
// priority, and what has finished or is ending anyway blocks nothing. What is behind volume claims is for the caller.
func (r Rules) judge(p *corev1.Pod) (role, string) {
	owner := metav1.GetControllerOfNoCopy(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case mirror, owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
		return apart, ""
	case hasEnded(p) && !isBeingUnmounted(p):
		return finished, ""
	case p.DeletionTimestamp != nil:
		return ending, ""
	}
	because := func(format string, args ...any) (role, string) {
		return blocking, "pod " + nameOf(p) + ": " + fmt.Sprintf(format, args...)
	}
	switch class := p.Spec.PriorityClassName; {
	case class == "system-node-critical", class == "system-cluster-critical":
		return because("critical priority %s", class)
	case p.Spec.Priority != nil && *p.Spec.Priority >= criticalPriority:
		return because("critical priority %d", *p.Spec.Priority)
	case p.Namespace == systemNamespace:
		return because("in namespace %s and not of a DaemonSet", systemNamespace)
	}
	if name := forbids(p.Annotations); name != "" {
		return because("annotated %s", name)
	}
	if owner == nil && r.BarePods != Evict {
		return because("no controller would start it again (DRAIN_BARE_PODS=%s)", Abort)
	}
	if v := localVolume(p); v != "" && r.LocalStorage != Evict {
		return blocking, isLocal(nameOf(p), v)
	}
	return moving, ""
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// isBeingUnmounted reports whether the kubelet has yet to take an ended pod's volumes from the node. A volume whose node is
// terminated meanwhile may lack what was written last, and is attached to another node only minutes later. The kubelet:
//
//  1. ends the containers and reports the phase,
//  2. unmounts the volumes,
//  3. deletes the pod with a grace of 0. From then on only a finalizer can keep the object, and that needs no node.
func isBeingUnmounted(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds > 0
}

func nameOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// forbids returns the annotation that forbids a pod's eviction, as it is written.
func forbids(a map[string]string) string {
	switch {
	case isOn(a, DoNotEvictAnnotation):
		return DoNotEvictAnnotation
	case a[evictLikeClusterAutoscaler] == "false":
		return evictLikeClusterAutoscaler + "=false"
	case isOn(a, likeKarpenter):
		return likeKarpenter
	}
	return ""
}

func keeps(a map[string]string) bool {
	return isOn(a, KeepAnnotation) || isOn(a, keepLikeClusterAutoscaler) || isOn(a, likeKarpenter)
}

// isOn reports whether an annotation is there and doesn't say false. A person who writes another word than true meant something by it, and
// leaving a pod or node alone is the safe reading.
func isOn(a map[string]string, key string) bool {
	v, ok := a[key]
	return ok && !strings.EqualFold(v, "false")
}

// localVolume returns the name of a volume whose content ends with the node. kubectl drain lets hostPath pass, because the node it
// drains comes back; ours does not.
func localVolume(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil || v.HostPath != nil {
			return v.Name
		}
	}
	return ""
}

// budgets are a cluster's PodDisruptionBudgets by namespace.
type budgets map[string][]budget

type budget struct {
	name     string
	selector labels.Selector
	allowed  int32
	always   bool // pods that are not healthy may always be evicted
	healthy  bool // there are as many healthy pods as are wanted
}

func (b budgets) add(p *policyv1.PodDisruptionBudget) error {
	s, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector of disruption budget %s/%s: %w", p.Namespace, p.Name, err)
	}
	policy := p.Spec.UnhealthyPodEvictionPolicy
	b[p.Namespace] = append(b[p.Namespace], budget{
		name: p.Name, selector: s, allowed: p.Status.DisruptionsAllowed,
		always:  policy != nil && *policy == policyv1.AlwaysAllow,
		healthy: p.Status.DesiredHealthy > 0 && p.Status.CurrentHealthy >= p.Status.DesiredHealthy,
	})
	return nil
}

// against tells why the eviction API would now refuse a pod that is to be moved; "" if it would not.
func (b budgets) against(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodPending { // evicted without asking any budget
		return ""
	}
	var hit *budget
	for i := range b[p.Namespace] {
		candidate := &b[p.Namespace][i]
		if !candidate.selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		if hit != nil {
			return fmt.Sprintf("pod %s: disruption budgets %s and %s both cover it, and the eviction API refuses that", nameOf(p), hit.name, candidate.name)
		}
		hit = candidate
	}
	if hit == nil || hit.allowed > 0 || !isReady(p.Status.Conditions) && (hit.always || hit.healthy) {
		return ""
	}
	return fmt.Sprintf("pod %s: disruption budget %s allows none", nameOf(p), hit.name)
}

func isReady(cs []corev1.PodCondition) bool {
	for i := range cs {
		if cs[i].Type == corev1.PodReady {
			return cs[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
