package nodes

// Room finds nodes with room for a pod without looking at each: a tree over the nodes in their order, in
// which every inner entry holds the most of each resource that a node below it has left. It answers as a
// search from the first node to the last would.
type Room struct {
	tree   []Resources // entry i has the children 2i and 2i+1; the nodes begin at half
	half   int
	n      int
	log    []change // what Undo takes back
	visits int      // entries that were looked at or changed
}

type change struct {
	node int
	was  Resources
}

// nothing is what a node has left that is not there.
var nothing = Resources{MilliCPU: -1, Memory: -1, Pods: -1}

// NewRoom returns the room that nodes have left beside their pods.
func NewRoom(nodes []*Node) *Room {
	r := &Room{half: 1, n: len(nodes)}
	for r.half < r.n {
		r.half *= 2
	}
	r.tree = make([]Resources, 2*r.half)
	for i := range r.half {
		r.tree[r.half+i] = nothing
		if i < r.n {
			r.tree[r.half+i] = nodes[i].free()
		}
	}
	for i := r.half - 1; i > 0; i-- {
		r.tree[i] = most(r.tree[2*i], r.tree[2*i+1])
	}
	return r
}

func most(a, b Resources) Resources {
	return Resources{MilliCPU: max(a.MilliCPU, b.MilliCPU), Memory: max(a.Memory, b.Memory), Pods: max(a.Pods, b.Pods)}
}

// First returns the first node, at from or after it, that has room for a pod that asks for want; -1 if there is none.
func (r *Room) First(from int, want Resources) int {
	if from >= r.n {
		return -1
	}
	return r.first(1, 0, r.half, from, want)
}

// first searches the entry that covers size nodes beginning at start.
func (r *Room) first(entry, start, size, from int, want Resources) int {
	r.visits++
	if start+size <= from || !r.tree[entry].holds(want) {
		return -1
	}
	if size == 1 {
		return start
	}
	if i := r.first(2*entry, start, size/2, from, want); i >= 0 {
		return i
	}
	return r.first(2*entry+1, start+size/2, size/2, from, want)
}

// Take gives a node's room to a pod.
func (r *Room) Take(node int, want Resources) {
	left := r.tree[r.half+node]
	r.set(node, Resources{
		MilliCPU: left.MilliCPU - want.MilliCPU,
		Memory:   left.Memory - want.Memory,
		Pods:     left.Pods - 1,
	})
}

// Close takes all of a node's room.
func (r *Room) Close(node int) { r.set(node, nothing) }

func (r *Room) set(node int, left Resources) {
	r.log = append(r.log, change{node, r.tree[r.half+node]})
	r.put(node, left)
}

func (r *Room) put(node int, left Resources) {
	i := r.half + node
	r.tree[i] = left
	for i /= 2; i > 0; i /= 2 {
		r.visits++
		r.tree[i] = most(r.tree[2*i], r.tree[2*i+1])
	}
}

// Mark returns a point to which Undo goes back.
func (r *Room) Mark() int { return len(r.log) }

// Undo takes back everything since a Mark.
func (r *Room) Undo(mark int) {
	for i := len(r.log) - 1; i >= mark; i-- {
		r.put(r.log[i].node, r.log[i].was)
	}
	r.log = r.log[:mark]
}
