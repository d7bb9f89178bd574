package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/local"
)

// hosts are the processes with the workers of scenario crowd.
type hosts struct {
	settings service.Options
	pool     int // stable IDs
	work     time.Duration
	logs     string // directory
	records  string // directory
	profiles string // directory of CPU profiles; empty: none are made
	all      []*host
}

// host is one of them.
type host struct {
	workers int
	record  string

	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers *json.Decoder
	done    chan struct{} // closed when the process has ended
	err     error         // of its end, valid after done
	wanted  atomic.Bool   // its end
	killed  time.Time     // zero: it was not
}

// add starts a process with n workers.
func (h *hosts) add(n int) (*host, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting workers: %w", err)
	}
	name := fmt.Sprintf("host-%02d", len(h.all))
	x := &host{workers: n, record: filepath.Join(h.records, name), done: make(chan struct{})}
	o := h.settings
	x.cmd = exec.CommandContext(context.Background(), program, "rig", "workers", "--nats", o.NATS, "--workers", strconv.Itoa(n), "--slots", strconv.Itoa(o.Slots), "--shards", strconv.Itoa(o.Shards),
		"--replicas", strconv.Itoa(o.Replicas), "--pool", strconv.Itoa(h.pool), "--pod", name, "--record", x.record, "--log-file", filepath.Join(h.logs, name+".log"), "--work", h.work.String())
	if h.profiles != "" {
		x.cmd.Args = append(x.cmd.Args, "--cpu-profile", filepath.Join(h.profiles, name+".pprof"))
	}
	x.cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2"), o.User.Environ()...)
	x.cmd.Stderr = os.Stderr
	if err := x.start(); err != nil {
		return nil, fmt.Errorf("starting workers: %w", err)
	}
	h.all = append(h.all, x)
	return x, nil
}

func (x *host) start() error {
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	x.answers = json.NewDecoder(out)
	if x.stdin, err = x.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := local.StartLowPriority(x.cmd); err != nil {
		return err
	}
	go func() {
		defer close(x.done)
		if err := x.cmd.Wait(); err != nil && !x.wanted.Load() {
			x.err = fmt.Errorf("%d workers of process %d: %w", x.workers, x.cmd.Process.Pid, err)
		}
	}()
	return nil
}

// usage asks the process what it has used.
func (x *host) usage() (workersUsage, error) {
	var u workersUsage
	_, err := io.WriteString(x.stdin, "\n")
	if err == nil {
		err = x.answers.Decode(&u)
	}
	if err != nil {
		return u, fmt.Errorf("asking a process of workers what it has used: %w", err)
	}
	return u, nil
}

// leave has all workers of the process leave.
func (x *host) leave() error { return x.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the process at once.
func (x *host) kill() {
	x.wanted.Store(true)
	_ = x.cmd.Process.Kill()
	x.killed = time.Now()
	<-x.done
}

func (x *host) ended() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// running returns those that have not ended.
func (h *hosts) running() []*host {
	var list []*host
	for _, x := range h.all {
		if !x.ended() {
			list = append(list, x)
		}
	}
	return list
}

// workers is how many run.
func (h *hosts) workers() int {
	n := 0
	for _, x := range h.running() {
		n += x.workers
	}
	return n
}

// failed returns the errors of processes that ended although they should not.
func (h *hosts) failed() error {
	var errs []error
	for _, x := range h.all {
		if x.ended() {
			errs = append(errs, x.err)
		}
	}
	return errors.Join(errs...)
}

// usage returns what each process that runs has used.
func (h *hosts) usage() (map[*host]workersUsage, error) {
	all := map[*host]workersUsage{}
	for _, x := range h.running() {
		u, err := x.usage()
		if err != nil {
			return nil, err
		}
		all[x] = u
	}
	return all, nil
}

// endings returns, by recorder file, when each killed process was gone.
func (h *hosts) endings() map[string]int64 {
	gone := map[string]int64{}
	for _, x := range h.all {
		if !x.killed.IsZero() {
			gone[x.record] = x.killed.UnixNano()
		}
	}
	return gone
}

// gone waits until some processes have ended by themselves.
func gone(ctx context.Context, some []*host, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v: the workers that leave have ended", within))
	defer cancel()
	for _, x := range some {
		select {
		case <-x.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// orphanedWithin is how long a process takes at most to end with its standard input.
const orphanedWithin = 20 * time.Second

// close ends all at once, without a handoff: what they have done is recorded.
func (h *hosts) close() {
	running := h.running()
	for _, x := range running {
		x.wanted.Store(true)
		_ = x.stdin.Close()
	}
	limit := time.After(orphanedWithin)
	for _, x := range running {
		select {
		case <-x.done:
		case <-limit:
			x.kill()
		}
	}
}
