package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-dev/muster/nodes/sim"
)

// This file serves CapacityBuffers, which have types of no client library here: they are JSON alone.

const (
	bufferGroup    = "autoscaling.x-k8s.io"
	bufferVersion  = "v1beta1"
	bufferResource = "capacitybuffers"
)

var (
	listBuffers       = Use{"list", bufferGroup, bufferResource, ""}
	updateBuffer      = Use{"update", bufferGroup, bufferResource, "status"}
	getTemplate       = Use{"get", "", "podtemplates", ""}
	discoverBuffers   = Use{"get", bufferGroup, "resources", ""} // of the group: needs no permission
	servedWithBuffers = []Use{listBuffers, updateBuffer, getTemplate, discoverBuffers}
)

// document is an object that is JSON alone.
type document struct {
	runtime.Object
	body any
}

// bufferPath takes the path of a request apart that is about the API of buffers.
func bufferPath(q *request, p []string) ([]string, bool) {
	if len(p) < 3 || p[0] != "apis" || p[1] != bufferGroup || p[2] != bufferVersion {
		return nil, false
	}
	q.use.Group = bufferGroup
	if len(p) == 3 {
		return []string{"resources", bufferVersion}, true
	}
	return p[3:], true
}

// serveBuffers answers requests about buffers; false if the request is about something else.
func serveBuffers(k *sim.Kube, q *request) (o runtime.Object, is bool, err error) {
	switch q.use {
	case discoverBuffers, listBuffers, updateBuffer, getTemplate:
		if !k.ServesBuffers() {
			return nil, true, apierrors.NewNotFound(schema.GroupResource{Group: bufferGroup, Resource: q.use.Resource}, q.name)
		}
	}
	switch q.use {
	case discoverBuffers:
		return document{body: map[string]any{"kind": "APIResourceList", "groupVersion": bufferGroup + "/" + bufferVersion,
			"resources": []any{map[string]any{"name": bufferResource, "kind": "CapacityBuffer", "namespaced": true}}}}, true, nil
	case listBuffers:
		var items []any
		for _, b := range k.Buffers() {
			items = append(items, bufferObject(b))
		}
		return document{body: map[string]any{"kind": "CapacityBufferList", "items": items}}, true, nil
	case updateBuffer:
		o, err = writeBuffer(k, q)
		return o, true, err
	case getTemplate:
		o, err = podTemplate(k, q)
		return o, true, err
	}
	return nil, false, nil
}

// bufferObject is a buffer as the API shows it. Its template has its name.
func bufferObject(b sim.KubeBuffer) map[string]any {
	namespace, name, _ := strings.Cut(b.Name, "/")
	spec := map[string]any{"replicas": b.Replicas, "podTemplateRef": map[string]any{"name": name}}
	if b.Strategy != "" {
		spec["provisioningStrategy"] = b.Strategy
	}
	out := map[string]any{"apiVersion": bufferGroup + "/" + bufferVersion, "kind": "CapacityBuffer", "spec": spec,
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": b.UID, "resourceVersion": strconv.Itoa(b.Version), "generation": 1}}
	if b.Status != nil {
		out["status"] = json.RawMessage(b.Status)
	}
	return out
}

// writeBuffer writes a status as the API server does: at the version that the body names, and nothing but the status.
func writeBuffer(k *sim.Kube, q *request) (runtime.Object, error) {
	var body struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   json.RawMessage   `json:"status"`
	}
	if err := json.Unmarshal(q.body, &body); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	name := q.namespace + "/" + q.name
	of := schema.GroupResource{Group: bufferGroup, Resource: bufferResource}
	for _, b := range k.Buffers() {
		if b.Name != name {
			continue
		}
		version, err := strconv.Atoi(body.Metadata.ResourceVersion)
		if err != nil || string(body.Metadata.UID) != b.UID || !k.SetBufferStatus(name, version, body.Status) {
			return nil, apierrors.NewConflict(of, q.name, said("the object has been modified; please apply your changes to the latest version and try again"))
		}
		b.Version, b.Status = version+1, body.Status
		return document{body: bufferObject(b)}, nil
	}
	return nil, apierrors.NewNotFound(of, q.name)
}

// podTemplate serves the template of a buffer.
func podTemplate(k *sim.Kube, q *request) (runtime.Object, error) {
	for _, b := range k.Buffers() {
		if b.Name != q.namespace+"/"+q.name || b.Lost {
			continue
		}
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: q.namespace, Name: q.name, ResourceVersion: "1", Generation: 1}}
		t.Template.Spec = corev1.PodSpec{NodeSelector: b.Pod.Selector, Tolerations: tolerationsOf(sim.KubePod{PodSpec: b.Pod}),
			Containers: []corev1.Container{{Name: "main", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(b.Pod.MilliCPU, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(b.Pod.Memory, resource.BinarySI),
			}}}}}
		return t, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "podtemplates"}, q.name)
}

// writeDocument answers with a document.
func writeDocument(w http.ResponseWriter, status int, d document) {
	body, err := json.Marshal(d.body)
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}
