package kubeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/muster-dev/muster/nodes/sim"
)

var (
	nodeResource = schema.GroupResource{Resource: "nodes"}
	podResource  = schema.GroupResource{Resource: "pods"}
)

// podLabel names a pod on itself, so that a budget can select it alone.
const podLabel = "sim.muster.dev/pod"

func fieldsOf(o runtime.Object) fields.Set {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return fields.Set{}
	}
	return fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase), "metadata.name": p.Name, "metadata.namespace": p.Namespace}
}

func nodeObjects(k *sim.Kube) []runtime.Object {
	var out []runtime.Object
	for _, n := range k.Nodes() {
		out = append(out, nodeObject(n))
	}
	return out
}

func nodeObject(n sim.KubeNode) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(n.Allocatable.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(n.Allocatable.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(n.Allocatable.Pods), resource.DecimalSI),
	}
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: types.UID(n.UID), ResourceVersion: n.Version, CreationTimestamp: metav1.NewTime(n.CreatedAt),
			Annotations: n.Annotations, Labels: map[string]string{corev1.LabelHostname: n.Name},
		},
		Spec: corev1.NodeSpec{ProviderID: n.ProviderID, Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}, {Type: corev1.NodeInternalIP, Address: n.InternalIP}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status(n.Ready), LastTransitionTime: metav1.NewTime(n.NotReadySince)}},
		},
	}
	maps.Copy(out.Labels, n.Labels)
	if !n.DiskFullSince.IsZero() {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(n.DiskFullSince)})
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, t := range n.Taints {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	if n.ToBeDeleted {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: sim.ToBeDeletedTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	if n.Unbalanced {
		out.Labels[corev1.LabelNodeExcludeBalancers] = sim.NotBalanced
	}
	if strings.HasPrefix(n.ProviderID, "aws:") { // stock nodes don't know their zone
		out.Labels[corev1.LabelTopologyZone] = n.Zone
	}
	if n.ControlPlane {
		out.Labels["node-role.kubernetes.io/control-plane"] = "true"
	}
	if n.Unschedulable {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	return out
}

func status(ok bool) corev1.ConditionStatus {
	if ok {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func podObjects(k *sim.Kube) []runtime.Object {
	var out []runtime.Object
	for _, p := range k.Pods() {
		out = append(out, podObject(k, p))
	}
	return out
}

func podObject(k *sim.Kube, p sim.KubePod) *corev1.Pod {
	ns, name := p.Split()
	grace := int64(cmp.Or(p.Grace, 2*time.Second) / time.Second)
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID(p.UID), ResourceVersion: p.Version, CreationTimestamp: metav1.NewTime(p.Since),
			Labels: map[string]string{podLabel: name}, Annotations: maps.Clone(p.Kube.Annotations), OwnerReferences: ownersOf(p, name),
		},
		Spec: corev1.PodSpec{
			NodeName: p.Node, NodeSelector: p.Selector, Tolerations: tolerationsOf(p), TerminationGracePeriodSeconds: &grace, PriorityClassName: p.Kube.PriorityClass,
			Containers: []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(p.MilliCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(p.Memory, resource.BinarySI),
			}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPhase(cmp.Or(p.Kube.Phase, phaseOf(p)))},
	}
	maps.Copy(out.Labels, p.Kube.Labels)
	for _, b := range k.Budgets() {
		if b.Covers(p.PodSpec) {
			out.Labels[budgetLabel(b.Name)] = "yes"
		}
	}
	if p.Critical && out.Spec.PriorityClassName == "" {
		out.Spec.PriorityClassName = "system-cluster-critical"
	}
	if p.Kube.Owner == "Node" {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	}
	switch p.Kube.LocalVolume {
	case "emptyDir":
		out.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	case "hostPath":
		out.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}}
	}
	if claims(p.PodSpec) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-of-" + name}}
		out.Spec.Volumes = append(out.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: source})
	}
	setConditions(out, p)
	setDeletion(k, out, p)
	return out
}

func tolerationsOf(p sim.KubePod) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range p.Tolerates {
		out = append(out, corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return out
}

func phaseOf(p sim.KubePod) string {
	if p.Node == "" {
		return string(corev1.PodPending)
	}
	return string(corev1.PodRunning)
}

func ownersOf(p sim.KubePod, name string) []metav1.OwnerReference {
	yes := true
	ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: cmp.Or(p.Kube.Owner, "ReplicaSet"), Name: "owner-of-" + name, UID: "owner-uid", Controller: &yes}
	switch {
	case p.Kube.Owner == "none":
		return nil
	case p.Daemon:
		ref.Kind = "DaemonSet"
	case p.Kube.Owner == "Job":
		ref.APIVersion = "batch/v1"
	case p.Kube.Owner == "Node":
		ref.APIVersion = "v1"
	}
	return []metav1.OwnerReference{ref}
}

func setConditions(out *corev1.Pod, p sim.KubePod) {
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: status(p.Node != ""), LastTransitionTime: metav1.NewTime(p.Since)}
	switch {
	case p.Node != "":
		out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status(!p.Kube.NotReady)})
	case p.Kube.Gated:
		scheduled.Reason = corev1.PodReasonSchedulingGated
		out.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
	default:
		scheduled.Reason = corev1.PodReasonUnschedulable
		scheduled.Message = "0/1 nodes are available: 1 Insufficient cpu."
	}
	out.Status.Conditions = append(out.Status.Conditions, scheduled)
}

// setDeletion shows a deletion that has begun, with the grace that remains.
func setDeletion(k *sim.Kube, out *corev1.Pod, p sim.KubePod) {
	if p.GoneAt.IsZero() {
		return
	}
	at, left := metav1.NewTime(p.GoneAt), int64(p.GoneAt.Sub(k.Now())/time.Second)
	if p.Stays {
		at, left = metav1.NewTime(k.Now()), 0
		out.Finalizers = []string{"sim.muster.dev/stays"}
	}
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = &at, &left
}

func budgetLabel(name string) string { return "sim.muster.dev/budget-" + name }

// budgetObjects lists the budgets, and one for each pod whose eviction is forbidden.
func budgetObjects(k *sim.Kube) []runtime.Object {
	var out []runtime.Object
	for _, b := range k.Budgets() {
		out = append(out, budgetObject(b.Namespace, b.Name, map[string]string{budgetLabel(b.Name): "yes"}, b.MinAvailable, b.Healthy, b.Expected))
	}
	for _, p := range k.Pods() {
		if p.Blocked {
			ns, name := p.Split()
			out = append(out, budgetObject(ns, "keeps-"+name, map[string]string{podLabel: name}, 1, 1, 1))
		}
	}
	return out
}

func budgetObject(ns, name string, labels map[string]string, least, healthy, expected int) *policyv1.PodDisruptionBudget {
	m := intstr.FromInt32(int32(least))
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("budget-" + name), ResourceVersion: "1", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &m, Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: int32(max(0, healthy-least)),
			CurrentHealthy: int32(healthy), DesiredHealthy: int32(least), ExpectedPods: int32(expected)},
	}
}

// claims reports whether a pod has a volume claim.
func claims(p sim.PodSpec) bool { return p.Kube.VolumeZone != "" || p.Kube.LocalVolume == "claim" }

// claimObjects lists the claims of the pods that have a volume.
func claimObjects(k *sim.Kube) []runtime.Object {
	var out []runtime.Object
	for _, p := range k.Pods() {
		if ns, name := p.Split(); claims(p.PodSpec) {
			out = append(out, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "claim-of-" + name, ResourceVersion: "1"},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "volume-of-" + ns + "-" + name},
			})
		}
	}
	return out
}

// volumeObjects lists their volumes. Each can be reached from its zone, a local one from its node only.
func volumeObjects(k *sim.Kube) []runtime.Object {
	var out []runtime.Object
	for _, p := range k.Pods() {
		if ns, name := p.Split(); claims(p.PodSpec) {
			from := corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{p.Kube.VolumeZone}}
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-of-" + ns + "-" + name, ResourceVersion: "1"}}
			if p.Kube.LocalVolume == "claim" {
				v.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
				from.Key, from.Values = corev1.LabelHostname, []string{p.Node}
			}
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{from}}}}}
			out = append(out, v)
		}
	}
	return out
}

// scaleOf serves the scale of a deployment.
func scaleOf(k *sim.Kube, q *request) (runtime.Object, error) {
	n, ok := k.Replicas(q.namespace, q.name)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, q.name)
	}
	s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: q.name, Namespace: q.namespace}}
	s.Spec.Replicas = int32(n)
	return s, nil
}

// onNode serves requests on one node.
func onNode(k *sim.Kube, q *request) (runtime.Object, error) {
	var found *sim.KubeNode
	for _, n := range k.Nodes() {
		if n.Name == q.name {
			found = &n
		}
	}
	if found == nil {
		return nil, apierrors.NewNotFound(nodeResource, q.name)
	}
	switch q.use.Verb {
	case "patch":
		if err := patchNode(k, q, found); err != nil {
			return nil, err
		}
		for _, n := range k.Nodes() {
			if n.NodeRef == found.NodeRef {
				return nodeObject(n), nil
			}
		}
	case "delete":
		if err := checkUID(q, nodeResource, found.UID, nil); err != nil {
			return nil, err
		}
		k.DeleteNode(found.NodeRef)
	}
	return nodeObject(*found), nil
}

// checkUID checks the UID that a deletion names as its precondition.
func checkUID(q *request, r schema.GroupResource, uid string, o *metav1.DeleteOptions) error {
	if o == nil && len(q.body) > 0 {
		var err error
		if o, err = decode[*metav1.DeleteOptions](q); err != nil {
			return err
		}
	}
	if o != nil && o.Preconditions != nil && o.Preconditions.UID != nil && string(*o.Preconditions.UID) != uid {
		return apierrors.NewConflict(r, q.name, wrongUID(string(*o.Preconditions.UID), uid))
	}
	return nil
}

// said is an error in the words of the real server.
type said string

func (s said) Error() string { return string(s) }

func wrongUID(want, is string) error {
	return said(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", want, is))
}

// patchNode applies a merge patch (RFC 7386) of metadata.annotations, spec.unschedulable and the marks of a drain among labels and taints.
// It refuses any other field, label and taint, because there it would only pretend.
func patchNode(k *sim.Kube, q *request, n *sim.KubeNode) error {
	if t := q.Header.Get("Content-Type"); t != string(types.MergePatchType) {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
			Reason: metav1.StatusReasonUnsupportedMediaType, Message: "patches of type " + t + " are not served here"}}
	}
	var p struct {
		Metadata struct {
			UID             *string            `json:"uid"`
			ResourceVersion *string            `json:"resourceVersion"`
			Annotations     map[string]*string `json:"annotations"`
			Labels          map[string]*string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Unschedulable *bool           `json:"unschedulable"`
			Taints        *[]corev1.Taint `json:"taints"`
		} `json:"spec"`
	}
	d := json.NewDecoder(strings.NewReader(string(q.body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if v := p.Metadata.ResourceVersion; v != nil && *v != n.Version {
		return apierrors.NewConflict(nodeResource, n.Name, said("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if u := p.Metadata.UID; u != nil && *u != n.UID {
		return apierrors.NewConflict(nodeResource, n.Name, wrongUID(*u, n.UID))
	}
	to := *n
	to.Annotations = maps.Clone(n.Annotations)
	if to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	for key, v := range p.Metadata.Annotations {
		if v == nil {
			delete(to.Annotations, key)
		} else {
			to.Annotations[key] = *v
		}
	}
	if p.Spec.Unschedulable != nil {
		to.Unschedulable = *p.Spec.Unschedulable
	}
	if err := setMarks(&to, p.Metadata.Labels, p.Spec.Taints); err != nil {
		return err
	}
	k.SetNode(to)
	return nil
}

// setMarks applies what a patch says of labels and taints. Taints come as a whole, and none but the mark may be missing or new.
func setMarks(to *sim.KubeNode, labels map[string]*string, taints *[]corev1.Taint) error {
	for key, v := range labels {
		if key != corev1.LabelNodeExcludeBalancers || v != nil && *v != sim.NotBalanced {
			return apierrors.NewBadRequest("label " + key + " can't be changed here")
		}
		to.Unbalanced = v != nil
	}
	if taints == nil {
		return nil
	}
	mark := func(t corev1.Taint) bool { return t.Key == sim.ToBeDeletedTaint }
	before := slices.DeleteFunc(nodeObject(*to).Spec.Taints, mark)
	after := slices.DeleteFunc(slices.Clone(*taints), mark)
	// The controller that gives a cordoned node its taint is as quick as the patch here.
	own := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }
	if !slices.Equal(slices.DeleteFunc(before, own), slices.DeleteFunc(after, own)) {
		return apierrors.NewBadRequest("taints other than " + sim.ToBeDeletedTaint + " can't be changed here")
	}
	to.ToBeDeleted = slices.ContainsFunc(*taints, mark)
	return nil
}

// evict serves an eviction the way the API server does: what has finished, is ending or hasn't begun is deleted without asking; two
// budgets are an error of its own; a budget that allows none is 429.
func evict(k *sim.Kube, q *request) (runtime.Object, error) {
	e, err := decode[*policyv1.Eviction](q)
	if err != nil {
		return nil, err
	}
	var p *sim.KubePod
	for _, candidate := range k.Pods() {
		if ns, name := candidate.Split(); ns == q.namespace && name == q.name {
			p = &candidate
		}
	}
	if p == nil {
		return nil, apierrors.NewNotFound(podResource, q.name)
	}
	if err := checkUID(q, podResource, p.UID, orEmpty(e.DeleteOptions)); err != nil {
		return nil, err
	}
	if p.GoneAt.IsZero() && p.Kube.Phase == "" && p.Node != "" {
		if err := disruption(k, q, p); err != nil {
			return nil, err
		}
	}
	k.Evict(p.Name, p.UID, graceOf(e.DeleteOptions))
	return &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}, nil
}

func orEmpty(o *metav1.DeleteOptions) *metav1.DeleteOptions {
	if o == nil {
		return &metav1.DeleteOptions{}
	}
	return o
}

// disruption asks the budgets.
func disruption(k *sim.Kube, q *request, p *sim.KubePod) error {
	var covering []sim.BudgetStatus
	for _, b := range k.Budgets() {
		if b.Covers(p.PodSpec) {
			covering = append(covering, b)
		}
	}
	if p.Blocked {
		covering = append(covering, sim.BudgetStatus{Budget: sim.Budget{Name: "keeps-" + q.name, MinAvailable: 1}, Healthy: 1})
	}
	if len(covering) > 1 {
		return apierrors.NewInternalError(said("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
	}
	if len(covering) == 0 || covering[0].Allowed() > 0 || p.Kube.NotReady && covering[0].Healthy >= covering[0].MinAvailable && covering[0].MinAvailable > 0 {
		return nil
	}
	refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", covering[0].Name, covering[0].MinAvailable, covering[0].Healthy)})
	return refused
}
