package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// WorkersOptions say how many workers of one process run. They are workers of the defenders'
// group that analyze nothing: what a group of thousands costs is the library's then.
type WorkersOptions struct {
	NATS     string // URLs of the servers
	Workers  int
	Slots    int // as provisioned, as are the next two
	Shards   int
	Replicas int
	Pool     int           // stable IDs, as provisioned
	Pod      string        // begins each worker's name for people
	Record   string        // file that processing is recorded in
	LogFile  string        // of all
	Profile  string        // file of a CPU profile; empty: none is made
	Work     time.Duration // that each message takes
}

// workersUsage is what a process of workers has used since it began, and who they are.
type workersUsage struct {
	CPU      time.Duration `json:"cpu_ns"`
	Bytes    uint64        `json:"bytes"`    // that the servers sent
	Messages uint64        `json:"messages"` // likewise
	IDs      []string      `json:"ids"`      // that its workers have now
}

// RunWorkers runs workers, each on a connection of its own, until ctx ends, in which case they
// leave, or in ends, in which case nothing is left that they could leave. It writes what they
// have used to out for each line of in.
func RunWorkers(ctx context.Context, o WorkersOptions, in io.Reader, out io.Writer) error {
	h, err := openWorkers(o)
	if err != nil {
		return err
	}
	stopProfile, err := profileTo(o.Profile)
	if err != nil {
		return errors.Join(err, h.close())
	}
	orphaned := make(chan error, 1)
	go func() { orphaned <- h.answer(in, json.NewEncoder(out)) }()
	done := make(chan error, 1)
	go func() { done <- h.run(ctx) }()

	select {
	case err = <-done:
	case err = <-orphaned:
	}
	return errors.Join(err, stopProfile(), h.close())
}

// profileTo begins a CPU profile, unless file is empty, and returns what ends it.
func profileTo(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// workers are those of this process.
type workers struct {
	record *record
	log    *os.File
	conns  []*nats.Conn
	all    []*partition.Worker
}

func openWorkers(o WorkersOptions) (*workers, error) {
	h := &workers{}
	if err := h.open(o); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *workers) open(o WorkersOptions) error {
	var err error
	if h.record, err = openRecord(o.Record); err != nil {
		return err
	}
	if h.log, err = os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	logger := slog.New(slog.NewTextHandler(h.log, nil))

	for i := range o.Workers {
		pod := fmt.Sprintf("%s-%d", o.Pod, i)
		nc, err := access.ConnectAs(o.NATS, "worker "+pod, access.User{})
		if err != nil {
			return err
		}
		h.conns = append(h.conns, nc)

		c := defender.Partition(o.Slots)
		c.Shards, c.Storage.Replicas = o.Shards, o.Replicas
		c.Identity.Pod, c.Identity.PoolSize, c.Logger = pod, o.Pool, logger
		w, err := partition.New(nc, c, &plainHandler{record: h.record, work: o.Work})
		if err != nil {
			return err
		}
		h.all = append(h.all, w)
	}
	return nil
}

// run runs all until ctx ends and all have left, or one fails.
func (h *workers) run(ctx context.Context) error {
	results := make(chan error, len(h.all))
	for _, w := range h.all {
		go func() { results <- w.Run(ctx) }()
	}
	for range h.all {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// answer tells what was used for each line that is read, until there are no more.
func (h *workers) answer(in io.Reader, out *json.Encoder) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := out.Encode(h.usage()); err != nil {
			return err
		}
	}
	return nil
}

func (h *workers) usage() workersUsage {
	u := workersUsage{CPU: processor.Time()}
	for _, nc := range h.conns {
		s := nc.Stats()
		u.Bytes += s.InBytes
		u.Messages += s.InMsgs
	}
	for _, w := range h.all {
		u.IDs = append(u.IDs, w.Status().ID)
	}
	return u
}

func (h *workers) close() error {
	for _, nc := range h.conns {
		nc.Close()
	}
	var errs []error
	if h.record != nil {
		errs = append(errs, h.record.Close())
	}
	if h.log != nil {
		errs = append(errs, h.log.Close())
	}
	return errors.Join(errs...)
}

// plainHandler records what it is given, and waits for as long as a message is to take.
type plainHandler struct {
	record *record
	work   time.Duration
	name   atomic.Pointer[string] // stable ID; nil before it has one
}

// Observe notes the worker's stable ID.
func (h *plainHandler) Observe(e event.Event) {
	if e.Kind == event.IDClaimed {
		h.name.Store(&e.Worker)
	}
}

// Handle implements partition.Handler.
func (h *plainHandler) Handle(ctx context.Context, m partition.Message) error {
	name := "-"
	if id := h.name.Load(); id != nil {
		name = *id
	}
	h.record.line('s', name, m, false, false)
	err := pause(ctx, h.work)
	h.record.line('e', name, m, err == nil, false)
	return err
}
