package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Options changes what Open does. The zero value is right.
type Options struct {
	// Cluster is the cluster's name; "" for the only one of the directory.
	Cluster string
	// SnapshotAt is the size of the log in bytes at which a snapshot replaces it; 0 means 1 MiB.
	SnapshotAt int64
	// SegmentAt is the size in bytes at which the journal begins a new file; 0 means 8 MiB.
	SegmentAt int64
	// Keep is how long journal files are kept after their last event; 0 means 30 days.
	Keep time.Duration
	// Now is the clock by which interruptions and journal files expire; nil means time.Now.
	Now func() time.Time
}

// Store keeps one cluster's record and interruptions; it implements nodes.Store. It may be used by several goroutines.
type Store struct {
	dir  string
	opts Options
	key  string // of the record

	mu    sync.Mutex
	lock  *os.File
	snap  *os.File // open, so that its inode can't be given to a later snapshot, by which a new one is recognised
	log   *os.File
	end   int64 // of the last whole frame read or written
	gen   int64 // of snapshot and log
	items map[string]json.RawMessage
}

// Open opens the store in a directory, which it creates if need be.
func Open(dir string, opts Options) (*Store, error) {
	if opts.SnapshotAt == 0 {
		opts.SnapshotAt = 1 << 20
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the store's directory, %w", err)
	}
	l, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the store's lock, %w", err)
	}
	s := &Store{dir: dir, opts: opts, key: nodes.RecordKey(opts.Cluster), lock: l}
	// Reading now reports a damaged directory at start-up and not at the first tick.
	if err := s.locked(context.Background(), func() error { return nil }); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the store's files.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(closeFile(s.snap), closeFile(s.log), closeFile(s.lock))
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// Load returns the record, a new one if there is none.
func (s *Store) Load(ctx context.Context) (nodes.Record, error) {
	r := nodes.NewRecord(s.opts.Cluster)
	err := s.locked(ctx, func() error { return s.item(s.key, &r) })
	return r, err
}

// Apply makes one transition.
func (s *Store) Apply(ctx context.Context, t nodes.Transition) (nodes.Record, error) {
	var out nodes.Record
	err := s.locked(ctx, func() error {
		r := nodes.NewRecord(s.opts.Cluster)
		if err := s.item(s.key, &r); err != nil {
			return err
		}
		next, changed, err := nodes.Applied(r, t)
		out = next
		if err != nil || !changed {
			return err
		}
		return s.put(s.key, next)
	})
	return out, err
}

// OpenInterruptions returns every interruption that is not closed, by instance ID. Expired closed ones are forgotten at the next
// snapshot.
func (s *Store) OpenInterruptions(ctx context.Context) ([]nodes.Interruption, error) {
	var out []nodes.Interruption
	err := s.locked(ctx, func() error {
		for key := range s.items {
			if !strings.HasPrefix(key, s.interruptionKey("")) {
				continue
			}
			var i nodes.Interruption
			if err := s.item(key, &i); err != nil {
				return err
			}
			if !i.Closed {
				out = append(out, i)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b nodes.Interruption) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return out, err
}

// ApplyInterruption makes one transition of an interruption.
func (s *Store) ApplyInterruption(ctx context.Context, instanceID string, t nodes.InterruptionTransition) (nodes.Interruption, error) {
	var out nodes.Interruption
	key := s.interruptionKey(instanceID)
	err := s.locked(ctx, func() error {
		var i nodes.Interruption
		if err := s.item(key, &i); err != nil {
			return err
		}
		next, changed, err := nodes.AppliedInterruption(i, t)
		out = next
		if err != nil || !changed {
			return err
		}
		return s.put(key, next)
	})
	return out, err
}

func (s *Store) interruptionKey(instanceID string) string {
	return s.key + "/interruption/" + instanceID
}

// locked calls f while nobody else reads or writes, with the items as they are on disk. An error of f other than a refusal leaves
// it open what is on disk, so the next call reads everything again.
func (s *Store) locked(ctx context.Context, f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := lock(ctx, s.lock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.refresh(); err != nil {
		s.forget()
		return fmt.Errorf("reading the store, %w", err)
	}
	err = f()
	if err != nil && !nodes.IsRefused(err) {
		s.forget()
	}
	return err
}

func (s *Store) item(key string, into any) error {
	raw, ok := s.items[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading item %s, %w", key, err)
	}
	return nil
}

// write is one frame of the log: an item as it is from now on. It is complete in itself, so that replaying it twice does no harm.
type write struct {
	Key  string          `json:"key"`
	Item json.RawMessage `json:"item"`
}

// snapshot is the one frame of the snapshot file.
type snapshot struct {
	Generation int64                      `json:"generation"` // of the log that continues it
	Items      map[string]json.RawMessage `json:"items"`
}

func (s *Store) put(key string, item any) error {
	raw, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("encoding item %s, %w", key, err)
	}
	payload, err := json.Marshal(write{Key: key, Item: raw})
	if err != nil {
		return fmt.Errorf("encoding item %s, %w", key, err)
	}
	if err := s.append(payload); err != nil {
		return fmt.Errorf("writing item %s, %w", key, err)
	}
	s.items[key] = raw
	if s.end > s.opts.SnapshotAt {
		// The write is durable already. If the snapshot fails the log goes on and the next write tries again.
		_ = s.compact()
	}
	return nil
}

// append writes one frame and waits until it is on disk.
func (s *Store) append(payload []byte) error {
	frame := appendFrame(nil, payload)
	if _, err := s.log.WriteAt(frame, s.end); err != nil {
		return err
	}
	if err := s.log.Sync(); err != nil {
		return err
	}
	s.end += int64(len(frame))
	return nil
}

// refresh brings items up to what is on disk: everything after another process's snapshot, else the log's new frames.
func (s *Store) refresh() error {
	current, err := os.Stat(s.path("state.snap"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if s.log == nil || !s.sameSnapshot(current) {
		if err := s.reload(); err != nil {
			return err
		}
	}
	end, err := scanFrames(s.log, s.end, func(payload []byte) error {
		var w write
		if err := json.Unmarshal(payload, &w); err != nil {
			return err
		}
		s.items[w.Key] = w.Item
		return nil
	})
	if err != nil {
		return err
	}
	s.end = end
	// Whatever follows the last whole frame was never acknowledged. Cutting it off now keeps a shorter frame from being written
	// over a longer torn one, whose rest would then look like damage.
	info, err := s.log.Stat()
	if err != nil {
		return err
	}
	if info.Size() > s.end {
		return s.log.Truncate(s.end)
	}
	return nil
}

func (s *Store) sameSnapshot(current os.FileInfo) bool {
	if s.snap == nil || current == nil {
		return s.snap == nil && current == nil
	}
	own, err := s.snap.Stat()
	return err == nil && os.SameFile(own, current)
}

func (s *Store) forget() {
	_ = closeFile(s.snap)
	_ = closeFile(s.log)
	s.snap, s.log, s.end, s.gen, s.items = nil, nil, 0, 0, nil
}

// reload opens the snapshot and the log that continues it.
func (s *Store) reload() error {
	s.forget()
	s.items = map[string]json.RawMessage{}
	f, err := os.Open(s.path("state.snap"))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		s.snap = f
		if err := s.readSnapshot(f); err != nil {
			return err
		}
	}
	s.log, err = os.OpenFile(s.logPath(s.gen), os.O_RDWR|os.O_CREATE, 0o600)
	return err
}

func (s *Store) readSnapshot(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	payload, err := readFrame(f, 0, info.Size())
	if errors.Is(err, errTorn) { // it was complete before it was renamed
		return &CorruptError{f.Name(), 0}
	}
	if err != nil {
		return err
	}
	var snap snapshot
	if err := json.Unmarshal(payload, &snap); err != nil {
		return err
	}
	s.gen = snap.Generation
	if snap.Items != nil {
		s.items = snap.Items
	}
	return nil
}

// compact writes a snapshot and begins a new log. The order matters: the new log exists before the snapshot that names it, and the
// old log is removed only after that snapshot can't be lost any more.
func (s *Store) compact() error {
	s.expire()
	payload, err := json.Marshal(snapshot{Generation: s.gen + 1, Items: s.items})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.logPath(s.gen+1), nil, 0o600); err != nil { // empties one that an earlier attempt left behind
		return err
	}
	if err := replaceFile(s.path("state.snap"), appendFrame(nil, payload)); err != nil {
		return err
	}
	old := s.logPath(s.gen)
	if err := s.reload(); err != nil {
		return err
	}
	return os.Remove(old)
}

// expire forgets closed interruptions that are past their time.
func (s *Store) expire() {
	now := s.opts.Now().Unix()
	for key, raw := range s.items {
		var i nodes.Interruption
		if !strings.Contains(key, "/interruption/") || json.Unmarshal(raw, &i) != nil {
			continue
		}
		if i.Closed && i.ExpiresEpoch != 0 && i.ExpiresEpoch < now {
			delete(s.items, key)
		}
	}
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) logPath(gen int64) string { return s.path(fmt.Sprintf("state-%d.log", gen)) }

// replaceFile puts a file with this content in the place of another, or leaves the other as it is.
func replaceFile(path string, content []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
