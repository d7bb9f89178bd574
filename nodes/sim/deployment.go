package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Process is what runs in a pod of a deployment, outside of the simulator.
type Process interface {
	Stop()                 // SIGTERM: end gracefully
	Kill()                 // SIGKILL, or the machine is gone
	Done() <-chan struct{} // closed when it has ended
}

// PodRun tells a process which pod it is and where it runs.
type PodRun struct {
	Pod      string // without its namespace; no other pod ever has the name
	Node     string
	Instance string
}

// Deployment is a ReplicaSet and the kubelets under it: it keeps as many pods as are wanted, and runs a real process in each that has
// a node. A pod that becomes Running is a process that is started; one that is evicted is a process that is told to stop and stays
// until it has, or its grace is over; a machine that goes takes its processes with it at once. As in Kubernetes the replacement of
// a pod is made when its deletion begins, not when it ends.
//
// It is for simulations in real time.
type Deployment struct {
	state     *state
	namespace string
	name      string
	spec      PodSpec
	start     func(PodRun) (Process, error)

	mu     sync.Mutex
	want   int
	serial int
	pods   []*replica
}

// replica is a pod of a deployment with its process.
type replica struct {
	name     string // with namespace
	node     string
	process  Process
	stopping time.Time // of the simulator, when it was told to stop
	restart  time.Time // of the simulator, before which it isn't started again
	evicted  bool      // its deletion has begun
	dead     bool      // its machine is gone
}

// update takes over what has become of the pod in the simulator; p is nil if it isn't there any more. It reports whether the machine
// under the pod has let go of it: a pod of a machine that is gone stays until then, when it becomes another one's.
func (r *replica) update(p *pod) (released bool) {
	onNode := p != nil && p.node != nil
	elsewhere := !onNode || p.node.Name != r.node
	r.evicted = r.evicted || p != nil && p.evicted()
	switch {
	case r.node != "" && elsewhere, onNode && !p.node.instance.alive():
		r.dead = true
	case onNode && r.node == "":
		r.node = p.node.Name
	}
	return r.dead && elsewhere
}

// startable reports whether a process is to be started in the pod, which has begun neither its deletion nor another life.
func (r *replica) startable(p *pod, now time.Time) bool {
	onNode := p != nil && p.node != nil
	return onNode && !r.dead && r.process == nil && !now.Before(r.restart)
}

// placed is a pod that has a node and no process yet.
type placed struct {
	replica *replica
	run     PodRun
}

// PodPhase is what a pod of a deployment is doing.
type PodPhase string

// The phases of a pod.
const (
	PodPending     PodPhase = "Pending"
	PodRunning     PodPhase = "Running"
	PodTerminating PodPhase = "Terminating"
)

// PodStatus is a pod of a deployment.
type PodStatus struct {
	Name  string // without its namespace
	Node  string
	Phase PodPhase
}

// crashBackOff is how long a process that ended by itself isn't started again.
const crashBackOff = 10 * time.Second

// newDeployment returns a deployment without pods.
func newDeployment(s *state, spec PodSpec, start func(PodRun) (Process, error)) *Deployment {
	d := &Deployment{state: s, spec: spec, start: start}
	d.namespace, d.name = spec.Split()
	d.spec.Grace = cmp.Or(spec.Grace, 30*time.Second)
	d.spec.Stuck = true // how long it takes is the process's matter
	d.setReplicas(0)
	return d
}

// Scale sets the number of pods that are wanted.
func (d *Deployment) Scale(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = n
	d.setReplicas(n)
}

func (d *Deployment) setReplicas(n int) {
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.state.objects.replicas[d.spec.Name] = n
}

// Replicas returns the number of pods that are wanted.
func (d *Deployment) Replicas() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.want
}

// Pods returns the pods, oldest first.
func (d *Deployment) Pods() []PodStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]PodStatus, 0, len(d.pods))
	for _, r := range d.pods {
		_, name := PodSpec{Name: r.name}.Split()
		s := PodStatus{Name: name, Node: r.node, Phase: PodPending}
		switch {
		case r.evicted || r.dead:
			s.Phase = PodTerminating
		case r.process != nil:
			s.Phase = PodRunning
		}
		out = append(out, s)
	}
	return out
}

// Run starts and replaces the pods until ctx ends; then it tells every process to stop and waits until all have, at most for the grace of a
// pod, after which it kills them. The error is that of a process that could not be started.
func (d *Deployment) Run(ctx context.Context) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	var err error
	for err == nil {
		select {
		case <-ctx.Done():
			d.shutdown()
			return nil
		case <-t.C:
			err = d.step()
		}
	}
	d.shutdown()
	return err
}

func (d *Deployment) shutdown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []Process
	for _, r := range d.pods {
		if r.process != nil {
			left = append(left, r.process)
		}
	}
	StopAll(left, d.spec.Grace)
}

// StopAll tells every process to stop and waits until all have; after the grace it kills those that have not.
func StopAll(processes []Process, grace time.Duration) {
	for _, p := range processes {
		p.Stop()
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	over := false
	for _, p := range processes {
		if !over {
			select {
			case <-p.Done():
				continue
			case <-limit.C:
				over = true
			}
		}
		if !ended(p) {
			p.Kill()
			<-p.Done()
		}
	}
}

// step compares pods and processes once. Everything that calls a process happens without the simulator's lock.
func (d *Deployment) step() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, starting := d.compare()
	for _, r := range d.pods {
		switch {
		case r.process == nil:
		case ended(r.process):
			r.process = nil
			r.restart = now.Add(crashBackOff)
		case r.dead:
			r.process.Kill()
		case r.evicted && r.stopping.IsZero():
			r.stopping = now
			r.process.Stop()
		case r.evicted && now.Sub(r.stopping) >= d.spec.Grace:
			r.process.Kill()
		}
	}
	for _, s := range starting {
		p, err := d.start(s.run)
		if err != nil {
			return fmt.Errorf("starting pod %s on %s: %w", s.run.Pod, s.run.Node, err)
		}
		s.replica.process = p
	}
	return nil
}

// compare looks at the pods in the simulator: which ones have a node, whose deletion has begun, whose machine is gone. It forgets
// those that are gone permanently, makes new ones, and returns what is to be started.
func (d *Deployment) compare() (time.Time, []placed) {
	s := d.state
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := make(map[string]*pod, len(d.pods))
	for _, p := range s.pods.pods {
		byName[p.Name] = p
	}

	var starting []placed
	active := 0
	d.pods = slices.DeleteFunc(d.pods, func(r *replica) bool {
		p := byName[r.name]
		ending := r.update(p) || r.evicted
		switch {
		case ending && r.process == nil:
			s.pods.remove(func(o *pod) bool { return o.Name == r.name })
			return true
		case ending:
			return false
		}
		active++
		if r.startable(p, s.time.now) {
			_, name := PodSpec{Name: r.name}.Split()
			starting = append(starting, placed{r, PodRun{Pod: name, Node: r.node, Instance: p.node.instance.ID}})
		}
		return false
	})

	for ; active < d.want; active++ {
		d.add()
	}
	d.remove(active-d.want, byName)
	s.settle()
	return s.time.now, starting
}

// add makes a new pod.
func (d *Deployment) add() {
	d.serial++
	spec := d.spec
	spec.Name = fmt.Sprintf("%s/%s-%05d", d.namespace, d.name, d.serial)
	d.state.pods.add(spec, nil)
	d.pods = append(d.pods, &replica{name: spec.Name})
}

// remove begins the deletion of n pods, in the order of a ReplicaSet: those without a node first, then the newest.
func (d *Deployment) remove(n int, byName map[string]*pod) {
	for _, unplaced := range []bool{true, false} {
		for i := len(d.pods) - 1; i >= 0 && n > 0; i-- {
			r, p := d.pods[i], byName[d.pods[i].name]
			if r.evicted || r.dead || p == nil || (r.node == "") != unplaced {
				continue
			}
			r.evicted = true
			p.goes = d.state.time.now.Add(never)
			n--
		}
	}
}

func ended(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}
