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
// It is for worlds in real time.
type Deployment struct {
	w         *Simulator
	namespace string
	name      string
	spec      PodSpec
	start     func(PodRun) (Process, error)

	mu     sync.Mutex
	want   int
	serial int
	pods   []*replica
}

type replica struct {
	name     string // with namespace
	node     string
	process  Process
	stopping time.Time // of the simulator, when it was told to stop
	restart  time.Time // of the simulator, before which it isn't started again
	evicted  bool      // its deletion has begun
	dead     bool      // its machine is gone
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

// Deploy returns a deployment without pods. spec is of each pod; its Name is the deployment's, namespace/name, its Grace the pods'
// termination grace period, by default 30 s. start starts a pod's process and must not wait for it to be ready.
func (w *Simulator) Deploy(spec PodSpec, start func(PodRun) (Process, error)) *Deployment {
	d := &Deployment{w: w, spec: spec, start: start}
	d.namespace, d.name = spec.Split()
	d.spec.Grace = cmp.Or(spec.Grace, 30*time.Second)
	d.spec.Stuck = true // how long it takes is the process's matter
	w.setReplicas(spec.Name, 0)
	return d
}

// Scale sets the number of pods that are wanted.
func (d *Deployment) Scale(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = n
	d.w.setReplicas(d.spec.Name, n)
}

func (w *Simulator) setReplicas(deployment string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replicas == nil {
		w.replicas = map[string]int{}
	}
	w.replicas[deployment] = n
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

// compare looks at the pods in the simulator: who has got a node, whose deletion has begun, whose machine is gone. It forgets those that
// are gone for good, makes new ones, and returns what is to be started.
func (d *Deployment) compare() (time.Time, []placed) {
	w := d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var starting []placed
	byName := make(map[string]*pod, len(d.pods))
	for _, p := range w.pods {
		byName[p.Name] = p
	}
	active := 0
	d.pods = slices.DeleteFunc(d.pods, func(r *replica) bool {
		p := byName[r.name]
		onNode := p != nil && p.node != nil
		r.evicted = r.evicted || p != nil && !p.goes.IsZero()
		switch {
		case r.node != "" && (!onNode || p.node.Name != r.node), onNode && !p.node.instance.alive():
			r.dead = true
		case onNode && r.node == "":
			r.node = p.node.Name
		}
		// A pod of a machine that is gone stays until its node lets go of it, which makes it another one's.
		letGo := r.dead && (!onNode || p.node.Name != r.node)
		if (r.evicted || letGo) && r.process == nil {
			w.dropPod(r.name)
			return true
		}
		if !r.evicted && !letGo {
			active++
			if onNode && !r.dead && r.process == nil && !w.now.Before(r.restart) {
				_, name := PodSpec{Name: r.name}.Split()
				starting = append(starting, placed{r, PodRun{Pod: name, Node: r.node, Instance: p.node.instance.ID}})
			}
		}
		return false
	})
	for ; active < d.want; active++ {
		d.serial++
		s := d.spec
		s.Name = fmt.Sprintf("%s/%s-%05d", d.namespace, d.name, d.serial)
		w.pods = append(w.pods, &pod{PodSpec: s, since: w.now})
		d.pods = append(d.pods, &replica{name: s.Name})
	}
	d.remove(active-d.want, byName)
	w.settle()
	return w.now, starting
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
			p.goes = d.w.now.Add(1000 * time.Hour)
			n--
		}
	}
}

func (w *Simulator) dropPod(name string) {
	w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p.Name == name })
}

func ended(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// NodeTime adds up how long instances have lived so far, servers of the control plane aside. Those that were there at the beginning
// count from then on.
func (w *Simulator) NodeTime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum time.Duration
	for _, in := range w.instances {
		if in.ControlPlane {
			continue
		}
		from, to := in.LaunchedAt, w.now
		if from.Before(w.opts.Start) {
			from = w.opts.Start
		}
		if !in.goneAt.IsZero() {
			to = in.goneAt
		}
		sum += to.Sub(from)
	}
	return sum
}
