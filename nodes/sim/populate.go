package sim

import "iter"

// Populate adds pods on the nodes of instances, all at once, whether or not there is room: for worlds so large that placing one pod
// after another would take its time. Pods of instances without a node are left out.
func (w *Simulator) Populate(pods iter.Seq2[string, PodSpec]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byID := make(map[string]*node, len(w.nodes))
	for _, n := range w.nodes {
		byID[n.instance.ID] = n
	}
	for id, spec := range pods {
		if n := byID[id]; n != nil {
			w.pods = append(w.pods, &pod{PodSpec: spec, since: w.now, node: n})
		}
	}
	w.settle()
}
