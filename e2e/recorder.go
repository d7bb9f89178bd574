package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// record is a file with the beginning and the end of the processing of each message and each
// call. Each line is one write to the operating system, so what is there survives the kill of the
// process. It knows nothing of how defenders or workers come to their decisions.
type record struct {
	mu   sync.Mutex
	file *os.File
	err  error // the first of writing
}

// openRecord returns a record that is appended to path.
func openRecord(path string) (*record, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("recording what is processed: %w", err)
	}
	return &record{file: f}, nil
}

// Close closes the file and returns the first error of writing to it.
func (r *record) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.file.Close(); r.err == nil {
		r.err = err
	}
	return r.err
}

// line writes that the worker with a stable ID begins ('s') or ends ('e') a message.
func (r *record) line(kind byte, name string, m partition.Message, ok, hit bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.file, "%c %d %s %d %s %d %t %t %d %s %d %d\n", kind, time.Now().UnixNano(), name, m.Sequence, m.Key, m.Slot, ok, hit, m.Published.UnixNano(), contextIDOf(m), m.Fence.Version, m.Fence.Claim)
	if r.err == nil {
		r.err = err
	}
}

// call writes that the worker with a stable ID begins ('c') or ends ('d') a call.
func (r *record) call(kind byte, name string, number uint64, c partition.Call, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintf(r.file, "%c %d %s %d %s %d %t %d %d\n", kind, time.Now().UnixNano(), name, number, c.Key, c.Slot, ok, c.Fence.Version, c.Fence.Claim)
	if r.err == nil {
		r.err = err
	}
}

// recorder is a defender whose processing is recorded, before and after its handler.
type recorder struct {
	*defender.Defender
	record *record

	mu   sync.Mutex
	name string // stable ID
	hits map[uint64]bool
}

// newRecorder returns a recorder that writes to path.
func newRecorder(path string) (*recorder, error) {
	r, err := openRecord(path)
	if err != nil {
		return nil, err
	}
	return &recorder{record: r, name: "-", hits: map[uint64]bool{}}, nil
}

// Close closes the record.
func (r *recorder) Close() error { return r.record.Close() }

// Processed notes whether a message's history was in memory. It is meant for
// defender.Config.Processed.
func (r *recorder) Processed(p defender.Processed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hits[p.Sequence] = p.CacheHit
}

// Observe notes the worker's name and passes the event on.
func (r *recorder) Observe(e event.Event) {
	if e.Kind == event.IDClaimed {
		r.mu.Lock()
		r.name = e.Worker
		r.mu.Unlock()
	}
	r.Defender.Observe(e)
}

// Handle records around the defender's own Handle.
func (r *recorder) Handle(ctx context.Context, m partition.Message) error {
	r.record.line('s', r.stableID(), m, false, false)
	err := failing(m)
	if err == nil {
		err = r.Defender.Handle(ctx, m)
	}
	hold(ctx, m)
	r.mu.Lock()
	hit := r.hits[m.Sequence]
	delete(r.hits, m.Sequence)
	r.mu.Unlock()
	r.record.line('e', r.stableID(), m, err == nil, hit)
	return err
}

// HandleCall serves a call of the scenario's caller, which works for as long as it says. The
// answer says in which process that was, and under which fence. It makes the recorder a
// partition.CallHandler: the defender itself answers no calls.
func (r *recorder) HandleCall(ctx context.Context, c partition.Call) ([]byte, error) {
	var q question
	if err := json.Unmarshal(c.Data, &q); err != nil {
		return nil, fmt.Errorf("reading the call's question: %w", err)
	}
	r.record.call('c', r.stableID(), q.Number, c, false)
	err := pause(ctx, q.Work)
	r.record.call('d', r.stableID(), q.Number, c, err == nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(audit.Server{Record: r.record.file.Name(), Version: c.Fence.Version, Claim: c.Fence.Claim})
}

func (r *recorder) stableID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name
}

// holdHeader lets a message be worked on for longer.
const holdHeader = "Scenario-Hold"

// holdWhileHeader ends that when the file that it names is gone.
const holdWhileHeader = "Scenario-Hold-While"

// paddingHeader makes a message large.
const paddingHeader = "Scenario-Padding"

// failHeader has a message fail as long as the file that it names is there.
const failHeader = "Scenario-Fail-While"

func failing(m partition.Message) error {
	file := m.Header.Get(failHeader)
	if file == "" {
		return nil
	}
	if _, err := os.Stat(file); err == nil {
		return fmt.Errorf("it fails as long as %s is there", file)
	}
	return nil
}

func hold(ctx context.Context, m partition.Message) {
	d, err := time.ParseDuration(m.Header.Get(holdHeader))
	if err != nil {
		return
	}
	file := m.Header.Get(holdWhileHeader)
	if file == "" {
		_ = pause(ctx, d)
		return
	}
	const look = 20 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := os.Stat(file); err != nil || pause(ctx, look) != nil {
			return
		}
	}
}

// contextIDOf returns the ID of a message's context, which is one word: what the server
// numbers a message with is another one's after the server has lost power.
func contextIDOf(m partition.Message) string {
	var v struct {
		Context string `json:"context"`
	}
	if json.Unmarshal(m.Data, &v) != nil || len(strings.Fields(v.Context)) != 1 {
		return "-"
	}
	return v.Context
}
