package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes/fit"
)

// volumes is what is behind the volume claims of a cluster.
type volumes struct {
	claims  map[string]claim // by namespace/name
	volumes map[string]*corev1.NodeSelector
	local   map[string]bool // volumes that are on a node's own disk, as those of K3s' local-path are
	classes map[string]storageClass
}

type claim struct {
	volume string // that it is bound to, "" for none
	class  string
}

type storageClass struct {
	waits    bool // binds when the first pod that uses it has been placed
	makes    bool // has a provisioner
	topology *corev1.NodeSelector
}

// listVolumes reads claims, volumes and storage classes: three more lists, asked for only if some pod has a claim.
func (c *Cluster) listVolumes(ctx context.Context) (*volumes, error) {
	v := &volumes{}
	err := pager[*corev1.PersistentVolumeClaimList]{
		c: c, what: "listing volume claims", of: c.core, name: "persistentvolumeclaims",
		begin: func() { v.claims = map[string]claim{} },
		add: func(l *corev1.PersistentVolumeClaimList) error {
			for i := range l.Items {
				p := &l.Items[i]
				out := claim{volume: p.Spec.VolumeName}
				if p.Spec.StorageClassName != nil {
					out.class = *p.Spec.StorageClassName
				}
				v.claims[p.Namespace+"/"+p.Name] = out
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *corev1.PersistentVolumeClaimList { return &corev1.PersistentVolumeClaimList{} })
	if err != nil {
		return nil, err
	}
	err = pager[*corev1.PersistentVolumeList]{
		c: c, what: "listing volumes", of: c.core, name: "persistentvolumes",
		begin: func() { v.volumes, v.local = map[string]*corev1.NodeSelector{}, map[string]bool{} },
		add: func(l *corev1.PersistentVolumeList) error {
			for i := range l.Items {
				p := &l.Items[i]
				v.volumes[p.Name] = reachableFrom(p)
				if p.Spec.Local != nil || p.Spec.HostPath != nil {
					v.local[p.Name] = true
				}
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *corev1.PersistentVolumeList { return &corev1.PersistentVolumeList{} })
	if err != nil {
		return nil, err
	}
	err = pager[*storagev1.StorageClassList]{
		c: c, what: "listing storage classes", of: c.storage, name: "storageclasses",
		begin: func() { v.classes = map[string]storageClass{} },
		add: func(l *storagev1.StorageClassList) error {
			for i := range l.Items {
				v.classes[l.Items[i].Name] = classOf(&l.Items[i])
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *storagev1.StorageClassList { return &storagev1.StorageClassList{} })
	return v, err
}

// reachableFrom returns the nodes from which a volume can be used, nil for all. Volumes of before CSI say it by labels.
func reachableFrom(p *corev1.PersistentVolume) *corev1.NodeSelector {
	if a := p.Spec.NodeAffinity; a != nil && a.Required != nil {
		return a.Required
	}
	var all []corev1.NodeSelectorRequirement
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if v := p.Labels[key]; v != "" {
			all = append(all, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: strings.Split(v, "__")})
		}
	}
	if all == nil {
		return nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: all}}}
}

func classOf(s *storagev1.StorageClass) storageClass {
	out := storageClass{
		waits: s.VolumeBindingMode != nil && *s.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer,
		makes: s.Provisioner != "kubernetes.io/no-provisioner",
	}
	for _, t := range s.AllowedTopologies {
		var term corev1.NodeSelectorTerm
		for _, r := range t.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOpIn, Values: slices.Clone(r.Values)})
		}
		if out.topology == nil {
			out.topology = &corev1.NodeSelector{}
		}
		out.topology.NodeSelectorTerms = append(out.topology.NodeSelectorTerms, term)
	}
	return out
}

// localOf returns which of a pod's volumes is a claim of a volume on a node's own disk, "" if none is.
func (v *volumes) localOf(namespace, pod string, all []corev1.Volume) string {
	for i := range all {
		if name := claimOf(pod, &all[i]); name != "" && v.local[v.claims[namespace+"/"+name].volume] {
			return all[i].Name
		}
	}
	return ""
}

// claimOf returns the name of a volume's claim, "" if it has none. That of an ephemeral volume is named after its pod.
func claimOf(pod string, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod + "-" + v.Name
	}
	return ""
}

func hasClaim(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return claimOf(p.Name, &v) != "" })
}

// look is a fit.Claims.
func (v *volumes) look(namespace, name string) fit.Claim {
	key := namespace + "/" + name
	problem := func(format string, args ...any) fit.Claim { return fit.Claim{Problem: fmt.Sprintf(format, args...)} }
	c, ok := v.claims[key]
	if !ok {
		return problem("its volume claim %s does not exist", key)
	}
	if c.volume != "" {
		from, ok := v.volumes[c.volume]
		if !ok {
			return problem("the volume %s of its claim %s does not exist", c.volume, key)
		}
		return fit.Claim{Affinity: from}
	}
	class, ok := v.classes[c.class]
	switch {
	case !ok:
		return problem("its volume claim %s is not bound and its storage class %q does not exist", key, c.class)
	case !class.waits:
		return problem("its volume claim %s is not bound yet", key)
	case !class.makes:
		return problem("its volume claim %s is not bound and its storage class %s makes no volumes", key, c.class)
	}
	return fit.Claim{Affinity: class.topology}
}
