package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/local"
)

// Working returns hooks that add a time to the processing of each context, and nothing else.
func Working(work time.Duration) local.Hooks {
	if work <= 0 {
		return local.Hooks{}
	}
	r := &rig{o: Options{Work: work}}
	return local.Hooks{Open: r.open, Process: r.process}
}

// rig is what stands between a stack and what it runs, so that a scenario can observe and
// disturb it.
type rig struct {
	o       Options
	records string // directory of what is processed; empty: nothing is recorded

	// What a scenario may set before it starts defenders.
	reads     defender.Store         // what defenders of this process are given; nil: the stack's
	configure func(*defender.Config) // changes a defender's configuration; nil: nothing does
	leave     time.Duration          // bounds a defender's graceful leave; 0: the default does
	program   string                 // that defenders are processes of; empty: this one

	disks *powercut.Rack // one for each server, if their power can be cut

	mu    sync.Mutex
	links map[string]links // by pod, its network, if that can be cut
}

func newRig(o Options) (*rig, error) {
	r := &rig{o: o, links: map[string]links{}}
	if !o.onDisks {
		return r, nil
	}
	if err := powercut.Supported(); err != nil {
		return nil, err
	}
	var err error
	r.disks, err = powercut.New(max(o.Servers, 1), o.ext4Data())
	return r, err
}

// close removes the disks, when no server runs any more.
func (r *rig) close() error {
	if r.disks == nil {
		return nil
	}
	return r.disks.Close()
}

// server has servers that can be killed run as processes, on disks whose power can be cut.
func (r *rig) server(place int, o *local.ServerOptions) {
	if r.o.Processes && r.o.ownBroker {
		o.OwnProcess = true
	}
	if r.disks != nil {
		o.Dir = filepath.Join(r.disks.Dir(place), "nats")
	}
	// Clients that learn of the servers' own addresses would leave the links out.
	o.NoAdvertise = r.o.chaotic
	o.MaxStore = r.o.maxStore
}

// cutPower kills some servers, by their places, and cuts the power of their disks: what
// they have not synced is lost, but for what is kept of it. It returns when the last of
// them was dead.
func (r *rig) cutPower(servers *local.Servers, keep powercut.Keep, rng *rand.Rand, which ...int) (time.Time, error) {
	servers.Kill(which...)
	dead := time.Now()
	return dead, r.disks.CutKeeping(keep, rng, which...)
}

// recordOf is the file in which a defender's processing is recorded; "" if it is not.
func (r *rig) recordOf(o service.Options) string {
	if r.records == "" {
		return ""
	}
	return filepath.Join(r.records, strings.TrimSuffix(filepath.Base(o.LogFile), ".log"))
}

// open opens a defender of this process.
func (r *rig) open(ctx context.Context, o service.Options, store defender.Store) (local.Defender, error) {
	if r.reads != nil {
		store = r.reads
	}
	o.Configure, o.LeaveTimeout = r.configure, r.leave
	return OpenDefender(ctx, DefenderOptions{Options: o, Work: r.o.Work, Record: r.recordOf(o)}, store)
}

// process changes how a defender's process is started.
func (r *rig) process(ctx context.Context, l *local.Launch) error {
	l.Options.LeaveTimeout = r.leave
	if r.o.chaotic {
		through, urls, err := newLinks(ctx, l.Options.NATS)
		if err != nil {
			return err
		}
		l.Options.NATS, l.Links = urls, through
		r.mu.Lock()
		r.links[l.Options.Pod] = through
		r.mu.Unlock()
		l.Killed = func(s *os.ProcessState) bool { return s.ExitCode() < 0 } // by a message
	}
	if r.program != "" {
		l.Program, l.Command = r.program, []string{"rig", "defender"} // of another version
	}
	l.Flags = append(l.Flags, "--work", r.o.Work.String(), "--record", r.recordOf(l.Options))
	if l.Serve != "" { // in a container
		l.Flags = append(l.Flags, "--ending", endingOf(l.Options.LogFile))
	}
	return nil
}

// linksOf returns the network of a process.
func (r *rig) linksOf(p *local.Process) links {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links[p.Options.Pod]
}

// endings returns, by recorder file, when each killed defender was gone.
func (r *rig) endings(all []*local.Process) map[string]int64 {
	gone := map[string]int64{}
	for _, p := range all {
		if at := p.Gone(); !at.IsZero() {
			gone[r.recordOf(p.Options)] = at.UnixNano()
		}
	}
	return gone
}

// startRecording makes the directory of records below a stack's.
func (r *rig) startRecording(dir string) error {
	records := filepath.Join(dir, "record")
	if err := os.MkdirAll(records, 0o755); err != nil {
		return fmt.Errorf("recording what is processed: %w", err)
	}
	r.records = records
	return nil
}
