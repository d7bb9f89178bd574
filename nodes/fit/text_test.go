package fit

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// pod reads a pod from YAML.
func pod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

func TestAPodWithoutConstraintsHasNoText(t *testing.T) {
	for name, text := range map[string]string{
		"bare": `{metadata: {namespace: a, labels: {app: x, pod-template-hash: "1"}}}`,
		"preferences and what the API server adds": `
metadata: {namespace: a, labels: {app: x}}
spec:
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: slow, operator: Exists, effect: PreferNoSchedule}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: x}}}
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: x}}}}]
  containers: [{name: c, image: i, resources: {requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}}}]`,
	} {
		if got := Encode(pod(t, text)); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestPodsPlacedAlikeHaveTheSameText(t *testing.T) {
	for name, pair := range map[string][2]string{
		"the order of everything": {`
metadata: {name: a-1, namespace: ns, labels: {app: x, hash: "1", pod-name: a-1}}
spec:
  nodeSelector: {a: "1", b: "2"}
  tolerations: [{key: k, value: v, operator: Equal}, {key: l, operator: Exists, tolerationSeconds: 3}]
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 1, labelSelector: {matchLabels: {app: x}}, matchLabelKeys: [hash]}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: z, operator: In, values: [b, a]}, {key: why, operator: Exists}]}, {matchExpressions: [{key: x, operator: Exists}]}]
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, labelSelector: {matchLabels: {app: x}}}]
  containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 2}, {containerPort: 1, hostPort: 1, protocol: TCP}]}]`, `
metadata: {name: a-2, namespace: ns, labels: {pod-name: a-2, hash: "1", app: x}}
spec:
  nodeSelector: {b: "2", a: "1"}
  tolerations: [{key: l, operator: Exists}, {key: k, value: v}]
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: hash, operator: In, values: ["1"]}, {key: app, operator: In, values: [x]}]}}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: x, operator: Exists}]}, {matchExpressions: [{key: why, operator: Exists}, {key: z, operator: In, values: [a, b]}]}]
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, namespaces: [ns], labelSelector: {matchExpressions: [{key: app, operator: In, values: [x]}]}}]
  containers: [{name: c, image: i, ports: [{containerPort: 9, hostPort: 1, hostIP: 0.0.0.0}, {containerPort: 1, hostPort: 2, protocol: TCP}]}]`},
	} {
		a, b := Encode(pod(t, pair[0])), Encode(pod(t, pair[1]))
		if a != b || a == "" {
			t.Errorf("%s:\n%s\n%s", name, a, b)
		}
	}
}

func TestEachConstraintIsInTheText(t *testing.T) {
	seen := map[string]string{"": "nothing"}
	for name, spec := range map[string]string{
		"node selector":     `nodeSelector: {a: b}`,
		"other value":       `nodeSelector: {a: c}`,
		"node affinity":     `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}`,
		"node field":        `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}}`,
		"toleration":        `tolerations: [{key: a, operator: Exists}]`,
		"spread":            `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]`,
		"wider spread":      `topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]`,
		"domains":           `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, minDomains: 3, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]`,
		"spread by taints":  `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, nodeTaintsPolicy: Honor, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]`,
		"spread over all":   `topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, nodeAffinityPolicy: Ignore, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}}]`,
		"affinity":          `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: x}}}]}}`,
		"anti-affinity":     `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: x}}}]}}`,
		"of all namespaces": `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaceSelector: {}, labelSelector: {matchLabels: {app: x}}}]}}`,
		"of other revision": `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, mismatchLabelKeys: [app], labelSelector: {matchLabels: {tier: x}}}]}}`,
		"gpu":               `containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: "1"}}}]`,
		"two gpus":          `containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: "2"}}}]`,
		"host port":         `containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80}]}]`,
		"udp host port":     `containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 80, protocol: UDP}]}]`,
		"sidecar's port":    `initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 81, hostPort: 81}]}]`,
		"resource claim":    `resourceClaims: [{name: gpu, resourceClaimName: gpu}]`,
	} {
		text := Encode(pod(t, "metadata: {namespace: ns, labels: {app: x, tier: front}}\nspec: {"+spec+"}"))
		if other, dup := seen[text]; dup {
			t.Errorf("%s reads like %s: %s", name, other, text)
		}
		seen[text] = name
		c, err := Decode(text)
		if err != nil || c.Text() != text {
			t.Errorf("%s: %s was read as %s, %v", name, text, c.Text(), err)
		}
	}
}

func TestLabelsAreKeptIfSomePodLooksAtThem(t *testing.T) {
	db := pod(t, `metadata: {namespace: ns, labels: {app: db, shard: "1"}}`)
	elsewhere := pod(t, `metadata: {namespace: other, labels: {app: db}}`)
	shy := pod(t, `{metadata: {namespace: ns}, spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: db}}}]}}}}`)
	e := NewEncoder(slices.Values([]*corev1.Pod{db, elsewhere, shy}), nil)
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"the key that is looked at", db, `{"namespace":"ns","labels":{"app":"db"}}`},
		{"a namespace that is not", elsewhere, ""},
	} {
		if got := e.Encode(test.pod); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestVolumesSayWhereAPodCanRun(t *testing.T) {
	p := pod(t, `
metadata: {name: p, namespace: ns}
spec:
  volumes:
  - {name: a, persistentVolumeClaim: {claimName: data}}
  - {name: b, ephemeral: {}}
  - {name: c, emptyDir: {}}`)
	zone := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}
	for _, test := range []struct {
		name   string
		claims map[string]Claim
		want   string
	}{
		{"no obstacle", nil, ""},
		{"bound to a zone", map[string]Claim{"ns/data": {Affinity: zone}}, `{"volumes":[{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}]}`},
		{"unbound", map[string]Claim{"ns/p-b": {Problem: "volume claim p-b is not bound"}}, `{"impossible":"volume claim p-b is not bound"}`},
	} {
		e := NewEncoder(slices.Values([]*corev1.Pod{p}), func(ns, name string) Claim { return test.claims[ns+"/"+name] })
		if got := e.Encode(p); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRequestsAreThoseOfTheScheduler(t *testing.T) {
	p := pod(t, `
spec:
  overhead: {cpu: 10m, memory: 1Mi}
  initContainers:
  - {name: big, image: i, resources: {requests: {cpu: "2"}}}
  - {name: sidecar, image: i, restartPolicy: Always, resources: {requests: {cpu: 100m, memory: 10Mi}}}
  containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 100Mi}}}]`)
	want := resource.MustParse("111Mi")
	if r := Requests(p); r.MilliCPU != 2010 || r.Memory != want.Value() {
		t.Errorf("%+v, want the larger of start and run, 2010m and 111 MiB", r)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("")
	f.Add("{}")
	f.Add(`{"labels":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists"}],"spread":[{"key":"z","maxSkew":1,"selector":{"matchLabels":{"a":"b"}}}]}`)
	f.Add(`{"nodeAffinity":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b","a","b"]}]},null]},"hostPorts":[{"port":1,"protocol":"TCP","ip":"::"}]}`)
	f.Add(`{"antiAffinity":[{"key":"h","selector":{},"namespaces":["b","a"]}],"resources":{"nvidia.com/gpu":1},"volumes":[{"nodeSelectorTerms":null}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Decode(text)
		if err != nil {
			return
		}
		once := c.Text()
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, once, err)
		}
		if twice := again.Text(); twice != once {
			t.Errorf("%q became %q", once, twice)
		}
	})
}
