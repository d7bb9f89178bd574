package e2e

import (
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/nodes/sim"
)

// pods notes how the defenders in pods end, and what a node plane does about an
// interruption.
type pods struct {
	mu    sync.Mutex
	all   map[string]*pod
	steps map[string]time.Time // of an interruption, by name: when the first was written down
}

// pod is the defender in a pod.
type pod struct {
	*local.Process
	end  sim.Process // what ends it
	node string
	once sync.Once // of Stop and Kill: what comes first is noted

	mu   sync.Mutex
	left int       // slots that it had when it was told to stop, or unknownSlots
	told time.Time // when that was; zero: it was not
	over time.Time // when it had ended; zero: it runs
	cut  bool      // it still ran when it was killed
}

// unknownSlots stands for slots of a defender that could not be asked.
const unknownSlots = -1

func newPods() *pods { return &pods{all: map[string]*pod{}, steps: map[string]time.Time{}} }

// attend enters the defender of a pod, and follows it to its end.
func (p *pods) attend(run sim.PodRun, d *local.Process, end sim.Process) sim.Process {
	x := &pod{Process: d, end: end, node: run.Node}
	p.mu.Lock()
	p.all[run.Pod] = x
	p.mu.Unlock()
	go func() {
		<-d.Done
		x.finish(time.Now())
	}()
	return x
}

// finish notes the end of a defender, which was seen at a moment. One in a container was
// told to stop by its kubelet, and has noted itself when that was and what it had.
func (p *pod) finish(seen time.Time) {
	noted, err := endingFile(endingOf(p.Options.LogFile)).read()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = seen
	switch {
	case err != nil: // it counts as one that could not be asked
		p.told, p.left = seen, unknownSlots
	case noted.Told.IsZero():
	default:
		p.told, p.left = noted.Told, noted.Slots
		if noted.Ended.IsZero() {
			p.cut = true // SIGKILL came before it had ended
		} else {
			p.over = noted.Ended
		}
	}
}

// wrote notes when a step of an interruption was first written down.
func (p *pods) wrote(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps[step].IsZero() {
		p.steps[step] = time.Now()
	}
}

// interruption returns when each step of an interruption was first written down, by name.
func (p *pods) interruption() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.steps)
}

// started returns all defenders that were started in pods, by the pods' names.
func (p *pods) started() map[string]*pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.all)
}

// Stop is the pod's SIGTERM. How much the defender still has then is what tells an orderly
// removal from a blind one.
func (p *pod) Stop() {
	p.once.Do(func() {
		left := p.slots() // of a process it takes a round trip
		p.mu.Lock()
		p.told, p.left = time.Now(), left
		p.mu.Unlock()
		p.end.Stop()
	})
}

// Kill ends the defender as its machine ends.
func (p *pod) Kill() {
	p.once.Do(func() {}) // too late for a SIGTERM
	if !p.Ended() {
		p.mu.Lock()
		p.cut = true
		p.mu.Unlock()
	}
	p.end.Kill()
}

// Done implements sim.Process.
func (p *pod) Done() <-chan struct{} { return p.Process.Done }

// slots returns how many slots the defender pulls for, or unknownSlots.
func (p *pod) slots() int {
	families, err := p.Gather()
	switch {
	case err == nil:
		return int(local.Metric(families, "defender_assigned_slots"))
	case errors.Is(err, local.ErrStarting) || p.Ended():
		return 0 // it has not joined, or has left
	}
	return unknownSlots
}

// wasCut reports whether the defender still ran when it was killed.
func (p *pod) wasCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

// toldAt returns when the defender got SIGTERM; zero if it has not.
func (p *pod) toldAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
}

// endedAt returns when the defender had ended; zero if it runs.
func (p *pod) endedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

// eviction is a pod that a drain evicted, and what its defender did.
type eviction struct {
	left int           // slots that the defender had when it was told to stop, or unknownSlots
	took time.Duration // from then until it had ended; 0 if it was not told, or runs
	cut  bool          // it was killed before it had ended by itself
}

// evictions returns what drains evicted.
func (p *pods) evictions(ledger []sim.Entry) []eviction {
	all := p.started()
	var out []eviction
	for _, e := range ledger {
		_, name := sim.PodSpec{Name: e.Detail}.Split()
		x := all[name]
		if x == nil {
			continue // it was evicted before its defender was started
		}
		out = append(out, x.eviction())
	}
	return out
}

func (p *pod) eviction() eviction {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := eviction{left: p.left, cut: p.cut}
	if !p.told.IsZero() && !p.over.IsZero() {
		e.took = p.over.Sub(p.told)
	}
	return e
}
