package sim

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster/nodes"
)

// Buffer is a CapacityBuffer with its pod template.
type Buffer struct {
	Name     string // namespace/name
	Replicas int    // pods that it keeps room for
	Pod      PodSpec
	Strategy string // how room is kept; "": the default, active capacity
	Lost     bool   // its pod template is not there
}

// KubeBuffer is a CapacityBuffer as the Kubernetes API shows it.
type KubeBuffer struct {
	Buffer
	UID     string
	Version int    // of the object; it grows with every write
	Status  []byte // as it was written, JSON; nil: never
}

// shownAs is what a view shows of the buffer.
func (b Buffer) shownAs() nodes.Buffer {
	out := nodes.Buffer{Name: b.Name, Replicas: b.Replicas, Pod: nodes.Pod{Requests: nodes.Resources{MilliCPU: b.Pod.MilliCPU, Memory: b.Pod.Memory}, Scheduling: b.Pod.Scheduling}}
	switch {
	case b.Strategy != "":
		out.Ignored, out.Cause = "its provisioning strategy "+b.Strategy+" is not supported", "UnsupportedStrategy"
	case b.Lost:
		out.Ignored, out.Cause = "its pod template is not there", "PodTemplateNotFound"
	}
	if out.Ignored != "" {
		out.Replicas, out.Pod = 0, nodes.Pod{}
	}
	return out
}

// SetBuffers replaces the CapacityBuffers. One that stays keeps its status.
func (w *Simulator) SetBuffers(bs ...Buffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.objects.buffers
	w.objects.buffers = nil
	for _, b := range bs {
		kept := KubeBuffer{Buffer: b, UID: "buffer-" + b.Name, Version: 1}
		for _, was := range before {
			if was.Name == b.Name {
				kept.Version, kept.Status = was.Version+1, was.Status
			}
		}
		w.objects.buffers = append(w.objects.buffers, kept)
	}
}

// ServeBuffers says whether the cluster has the API of CapacityBuffers; without it, it has none.
func (w *Simulator) ServeBuffers(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects.servesBuffers = is
}

// ServesBuffers reports whether the cluster has the API of CapacityBuffers.
func (k *Kube) ServesBuffers() bool { return k.state.objects.servesBuffers }

// Buffers lists the CapacityBuffers in the order of their names.
func (k *Kube) Buffers() []KubeBuffer {
	out := slices.Clone(k.state.objects.buffers)
	slices.SortFunc(out, func(a, b KubeBuffer) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// SetBufferStatus writes the status of a CapacityBuffer that is at a version; false if it is not, or is gone.
func (k *Kube) SetBufferStatus(name string, version int, status []byte) (ok bool) {
	for i := range k.state.objects.buffers {
		b := &k.state.objects.buffers[i]
		if b.Name == name && b.Version == version {
			b.Version, b.Status = b.Version+1, status
			return true
		}
	}
	return false
}
