package sim

import (
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// fakeProcess ends when it is told to, or only when it is killed.
type fakeProcess struct {
	run      PodRun
	stubborn bool
	once     sync.Once
	done     chan struct{}
	stopped  bool
	killed   bool
}

func (p *fakeProcess) end()                  { p.once.Do(func() { close(p.done) }) }
func (p *fakeProcess) Done() <-chan struct{} { return p.done }
func (p *fakeProcess) Kill()                 { p.killed = true; p.end() }
func (p *fakeProcess) Stop() {
	p.stopped = true
	if !p.stubborn {
		p.end()
	}
}

type fixture struct {
	t        *testing.T
	w        *Simulator
	d        *Deployment
	started  []*fakeProcess
	stubborn bool
}

func deploy(t *testing.T, workers ...string) *fixture {
	f := &fixture{t: t, w: New(Options{Policy: nodes.DefaultPolicy(), Workers: workers})}
	f.d = f.w.Deploy(PodSpec{Name: "fab/defender", MilliCPU: 500}, func(r PodRun) (Process, error) {
		p := &fakeProcess{run: r, stubborn: f.stubborn, done: make(chan struct{})}
		f.started = append(f.started, p)
		return p, nil
	})
	return f
}

func (f *fixture) steps(d time.Duration) {
	f.t.Helper()
	for range 3 {
		f.w.Advance(d / 3)
		if err := f.d.step(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fixture) count(phase PodPhase) (n int) {
	for _, p := range f.d.Pods() {
		if p.Phase == phase {
			n++
		}
	}
	return n
}

func (f *fixture) want(when string, running, pending, terminating int) {
	f.t.Helper()
	if r, p, x := f.count(PodRunning), f.count(PodPending), f.count(PodTerminating); r != running || p != pending || x != terminating {
		f.t.Errorf("%s: %d running, %d pending, %d terminating, want %d, %d, %d", when, r, p, x, running, pending, terminating)
	}
}

func evictAll(f *fixture, instance string) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, p := range f.w.pods.pods {
		if p.node != nil && p.node.instance.ID == instance {
			f.w.pods.evict("test", p, 0)
		}
	}
}

func TestPodsThatFitRunAndOthersWaitForANode(t *testing.T) {
	f := deploy(t, "a")
	f.d.Scale(6) // a node of 2 CPUs takes four of 500m
	f.steps(time.Second)
	f.want("at first", 4, 2, 0)
	f.w.AddWorker("b", f.w.Clock().Now())
	f.steps(time.Second)
	f.want("with another node", 6, 0, 0)
}

func TestAnEvictedPodStaysUntilItsProcessEndsAndIsReplacedAtOnce(t *testing.T) {
	f := deploy(t, "a", "b")
	f.stubborn = true
	f.d.Scale(4)
	f.steps(time.Second)
	first := f.started[0]
	evictAll(f, first.run.Instance)
	f.steps(time.Second)
	if !first.stopped || first.killed {
		t.Errorf("the process was stopped: %v, killed: %v", first.stopped, first.killed)
	}
	gone := f.count(PodTerminating)
	if gone == 0 || f.count(PodRunning)+f.count(PodPending) != 4 {
		t.Errorf("%d terminating, %d running, %d pending: replacements are made when a deletion begins", gone, f.count(PodRunning), f.count(PodPending))
	}
	first.end()
	f.steps(time.Second)
	if n := f.count(PodTerminating); n != gone-1 {
		t.Errorf("%d terminating, want %d: one has ended", n, gone-1)
	}
	f.steps(31 * time.Second)
	f.steps(time.Second)
	if n := f.count(PodTerminating); n != 0 {
		t.Errorf("%d terminating after the grace", n)
	}
}

func TestAMachineThatGoesTakesItsProcessesWithIt(t *testing.T) {
	f := deploy(t, "a", "b")
	f.d.Scale(4)
	f.steps(time.Second)
	victim := f.started[0]
	f.w.TakeAway(victim.run.Instance)
	f.steps(time.Second)
	if !victim.killed || victim.stopped {
		t.Errorf("the process was stopped: %v, killed: %v, want only killed", victim.stopped, victim.killed)
	}
	f.steps(30 * time.Second)
	f.want("when the node has let go of its pods", 4, 0, 0)
	for _, p := range f.d.Pods() {
		if p.Name == victim.run.Pod {
			t.Errorf("pod %s is back under its name", p.Name)
		}
	}
}

func TestScalingDownTakesPodsWithoutANodeFirstThenTheNewest(t *testing.T) {
	f := deploy(t, "a")
	f.d.Scale(6)
	f.steps(time.Second)
	f.d.Scale(3)
	f.steps(time.Second)
	f.steps(time.Second)
	f.want("after scaling to 3", 3, 0, 0)
	for i, p := range f.started {
		if p.stopped != (i == 3) {
			t.Errorf("process %d was stopped: %v", i, p.stopped)
		}
	}
}

func TestAProcessThatEndsByItselfIsStartedAgainAfterAWhile(t *testing.T) {
	f := deploy(t, "a")
	f.d.Scale(1)
	f.steps(time.Second)
	f.started[0].end()
	f.steps(3 * time.Second)
	if len(f.started) != 1 {
		t.Errorf("started %d times within the back-off", len(f.started))
	}
	f.steps(12 * time.Second)
	if len(f.started) != 2 || f.started[1].run != f.started[0].run {
		t.Errorf("started %d times, want twice in the same pod", len(f.started))
	}
}
