package deploy

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// objectOf reads the one object of a kind from a file of several.
func objectOf[T any](t *testing.T, file, kind string) T {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head struct{ Kind string }
		if err := yaml.Unmarshal(doc, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if head.Kind != kind {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict(doc, &object); err != nil {
			t.Fatalf("%s: %s: %v", file, kind, err)
		}
		return object
	}
	t.Fatalf("%s has no %s", file, kind)
	panic("unreachable")
}

// binaryMemory is what a defender's program itself keeps in memory beside Go's
// heap and stacks, which GOMEMLIMIT bounds.
const binaryMemory = 64 << 20

// TestTheAutoscalersMemoryTarget holds the memory target above what a healthy
// defender with a full cache uses. Below that the autoscaler adds defenders up to its
// maximum, and none of them lowers it.
func TestTheAutoscalersMemoryTarget(t *testing.T) {
	t.Parallel()
	deployment := objectOf[appsv1.Deployment](t, "kubernetes/defender/defender.yaml", "Deployment")
	scaler := objectOf[autoscalingv2.HorizontalPodAutoscaler](t, "kubernetes/defender/scaling.yaml", "HorizontalPodAutoscaler")
	container := deployment.Spec.Template.Spec.Containers[0]
	request := container.Resources.Requests.Memory().Value()
	limit := container.Resources.Limits.Memory().Value()

	var target int64
	for _, m := range scaler.Spec.Metrics {
		if m.Resource != nil && m.Resource.Name == corev1.ResourceMemory {
			target = request * int64(*m.Resource.Target.AverageUtilization) / 100
		}
	}
	var goLimit int64
	for _, e := range container.Env {
		if e.Name == "GOMEMLIMIT" {
			q := resource.MustParse(e.Value[:len(e.Value)-1]) // "400MiB" is 400Mi to Kubernetes
			goLimit = q.Value()
		}
	}
	at := slices.Index(container.Args, "--cache-mib")
	cache, err := strconv.ParseInt(container.Args[at+1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	cache <<= 20

	const mib = 1 << 20
	if target == 0 || goLimit == 0 {
		t.Fatalf("memory target %d, GOMEMLIMIT %d: one is missing", target, goLimit)
	}
	if full := goLimit + binaryMemory; target < full {
		t.Errorf("the target is %d MiB of a request of %d; a defender with a full cache uses up to %d MiB", target/mib, request/mib, full/mib)
	}
	if target >= limit {
		t.Errorf("the target is %d MiB, which the limit of %d MiB never lets it reach", target/mib, limit/mib)
	}
	if cache > goLimit/2 {
		t.Errorf("the cache may take %d MiB of GOMEMLIMIT's %d: more than half, so garbage is collected all the time", cache/mib, goLimit/mib)
	}
}
