package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNotReadySince: since when a node has not been Ready comes from its own condition.
func TestNotReadySince(t *testing.T) {
	at, deleted := time.Unix(1000, 0), time.Unix(2000, 0)
	for _, tt := range []struct {
		name    string
		status  corev1.ConditionStatus // "": no condition
		deleted bool
		ready   bool
		want    time.Time
	}{
		{"Ready", corev1.ConditionTrue, false, true, time.Time{}},
		{"not Ready", corev1.ConditionFalse, false, false, at},
		{"its kubelet does not answer", corev1.ConditionUnknown, false, false, at},
		{"being deleted", corev1.ConditionTrue, true, false, deleted},
		{"without a condition", "", false, false, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &corev1.Node{}
			if tt.deleted {
				n.DeletionTimestamp = &metav1.Time{Time: deleted}
			}
			if tt.status != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tt.status, LastTransitionTime: metav1.NewTime(at)}}
			}
			if got := nodeOf(n); got.Ready != tt.ready || !got.NotReadySince.Equal(tt.want) {
				t.Errorf("Ready %t, since %s", got.Ready, got.NotReadySince)
			}
		})
	}
}
