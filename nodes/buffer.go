package nodes

import "time"

// Buffer is a CapacityBuffer of the cluster: a number of pods alike for which room is kept. The pods are virtual: nobody creates them,
// nothing evicts them, and they wait for no node.
type Buffer struct {
	Name     string `json:"name"`               // namespace/name
	Replicas int    `json:"replicas,omitempty"` // how many pods it keeps room for
	Pod      Pod    `json:"pod,omitzero"`       // what one of them asks for; its name and its count are ignored
	// Ignored says why the buffer is not heeded, "" if it is: a provisioning strategy that Muster does not know, say, or a pod template
	// that is not there.
	Ignored string `json:"ignored,omitempty"`
	// Cause is Ignored in one word, as the condition of the buffer gives its reason.
	Cause string `json:"cause,omitempty"`
}

// pods returns the buffer's pods as one class, false if it keeps room for none.
func (b Buffer) pods() (Pod, bool) {
	p := b.Pod
	p.Name, p.Count, p.Buffer = "buffer:"+b.Name, b.Replicas, b.Name
	return p, b.Ignored == "" && b.Replicas > 0
}

// bufferPods lists the pods of all buffers that are heeded.
func bufferPods(buffers []Buffer) []Pod {
	var out []Pod
	for _, b := range buffers {
		if p, ok := b.pods(); ok {
			out = append(out, p)
		}
	}
	return out
}

// BufferSizer is a Sizer that knows where pods of buffers have their room. With another Sizer buffers are ignored.
type BufferSizer interface {
	Sizer
	// Placed returns of each pending pod of a question how many of it have room on nodes that are Ready and how many on nodes that are on
	// their way. The pods of buffers are placed after all others, whatever their order. It alters nothing that it is given.
	Placed(q Question) (ready, coming []int)
}

// heedsBuffers reports whether the policy and the sizer go by buffers: only what is packed by requests says how much room a buffer has,
// and only the Kubernetes API shows that a pod has come into it at once.
func heedsBuffers(p Policy, s Sizer) bool {
	_, places := s.(BufferSizer)
	return places && p.byAPI()
}

// Headroom is how a buffer stands.
type Headroom struct {
	Buffer   string `json:"buffer"`             // namespace/name
	Replicas int    `json:"replicas"`           // pods that it keeps room for
	Ready    int    `json:"ready"`              // of Replicas: with room on nodes that are Ready, beside all real pods
	Coming   int    `json:"coming,omitempty"`   // of Replicas: with room on nodes that are on their way
	NeverFit string `json:"neverFit,omitempty"` // why no node that could be launched would run its pods
	Ignored  string `json:"ignored,omitempty"`  // Buffer's
	Cause    string `json:"cause,omitempty"`    // Buffer's
}

// Short is how many of the buffer's pods have no room anywhere.
func (h Headroom) Short() int { return h.Replicas - h.Ready - h.Coming }

// headrooms finds out how the buffers stand.
func headrooms(p Policy, s Sizer, o Observation, exhausted []Exhausted, now time.Time) []Headroom {
	places, ok := s.(BufferSizer)
	if len(o.Buffers) == 0 || !ok || !p.byAPI() {
		return nil
	}
	q := bufferQuestion(p, o, exhausted, now)
	ready, coming := places.Placed(q)
	at := len(o.Pending) // of the next buffer's pods in the question
	var out []Headroom
	for _, b := range o.Buffers {
		h := Headroom{Buffer: b.Name, Ignored: b.Ignored, Cause: b.Cause}
		if _, heeded := b.pods(); heeded {
			h.Replicas, h.Ready, h.Coming, h.NeverFit = b.Replicas, ready[at], coming[at], b.Pod.NeverFit
			at++
		}
		out = append(out, h)
	}
	return out
}

// bufferQuestion asks about the pods of buffers, which come after the real pods that are pending.
func bufferQuestion(p Policy, o Observation, exhausted []Exhausted, now time.Time) Question {
	o.Pending = append(o.Pending[:len(o.Pending):len(o.Pending)], bufferPods(o.Buffers)...)
	return Question{Policy: p, Observation: o, Exhausted: exhausted, Now: now, Pending: podCount(o.Pending), Room: 1}
}

// keptPods are the pods of buffers that have room now. They need room elsewhere before a node is
// taken away, as if they ran: a buffer whose node went would have another one launched at once. What has no room now holds nothing up.
func keptPods(buffers []Buffer, stand []Headroom) []Pod {
	var out []Pod
	for i, h := range stand {
		if p, ok := buffers[i].pods(); ok && h.Ready > 0 {
			p.Count = h.Ready
			out = append(out, p)
		}
	}
	return out
}

// keeping is a fleet in which pods that are on no node need room beside those that leave.
type keeping struct {
	FittedFleet
	pods []Pod
}

// fleetKeeping is fleetOf where pods that are on no node keep their room.
func fleetKeeping(f Fitter, nodes []*Node, pods []Pod) FittedFleet {
	fleet := fleetOf(f, nodes)
	if len(pods) == 0 {
		return fleet
	}
	if k, ok := fleet.(interface{ Know(pods []Pod) }); ok {
		k.Know(pods)
	}
	return keeping{fleet, pods}
}

// Without is FittedFleet's.
func (k keeping) Without(node *Node, leaving []Pod) string {
	return k.FittedFleet.Without(node, append(leaving[:len(leaving):len(leaving)], k.pods...))
}
