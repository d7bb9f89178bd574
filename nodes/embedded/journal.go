package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/muster-dev/muster/nodes"
)

// Journal keeps events in append-only files; it implements nodes.Journal. It may be used by several goroutines.
type Journal struct {
	dir  string
	opts Options

	mu   sync.Mutex
	lock *os.File
	cur  *os.File        // the file that is appended to
	end  int64           // of its last whole frame read or written
	keys map[string]bool // of the events in the current file and the one before it, by which a repeated append is recognised
	enc  *zstd.Encoder
	dec  *zstd.Decoder
}

const (
	plainEvent = 4 << 10            // bytes of JSON up to which an event is kept as it is
	maxEvent   = 256 << 20          // bytes of an event's JSON; bounds what a damaged file can make a reader allocate
	zstdMagic  = "\x28\xb5\x2f\xfd" // with which a compressed event begins; JSON begins with a brace
)

// OpenJournal opens the journal in a directory, which it creates if need be.
func OpenJournal(dir string, opts Options) (*Journal, error) {
	if opts.SegmentAt == 0 {
		opts.SegmentAt = 8 << 20
	}
	if opts.Keep == 0 {
		opts.Keep = 30 * 24 * time.Hour
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the journal's directory, %w", err)
	}
	l, err := os.OpenFile(filepath.Join(dir, "journal.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal's lock, %w", err)
	}
	// Neither fails with options that are in range.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxEvent))
	if err != nil {
		panic(err)
	}
	return &Journal{dir: dir, opts: opts, lock: l, enc: enc, dec: dec}, nil
}

// pack returns what is written of an event: its JSON, compressed if it is large, as snapshots of large clusters are.
func (j *Journal) pack(payload []byte) ([]byte, error) {
	if len(payload) <= plainEvent {
		return payload, nil
	}
	if len(payload) > maxEvent {
		return nil, fmt.Errorf("it has %d bytes, the journal takes %d", len(payload), maxEvent)
	}
	packed := j.enc.EncodeAll(payload, nil)
	if len(packed) > maxFrame {
		return nil, fmt.Errorf("it has %d bytes compressed, the journal takes %d", len(packed), maxFrame)
	}
	return packed, nil
}

// unpack reads what was written of an event.
func (j *Journal) unpack(content []byte) (nodes.Event, error) {
	var e nodes.Event
	if bytes.HasPrefix(content, []byte(zstdMagic)) {
		var err error
		if content, err = j.dec.DecodeAll(content, nil); err != nil {
			return e, fmt.Errorf("decompressing an event, %w", err)
		}
	}
	err := json.Unmarshal(content, &e)
	return e, err
}

// Close closes the journal's files.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(closeFile(j.cur), closeFile(j.lock))
}

// Append adds an event and waits until it is on disk. An event that is there already is not added again.
func (j *Journal) Append(ctx context.Context, e nodes.Event) error {
	payload, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding event %s, %w", e.Key(), err)
	}
	if payload, err = j.pack(payload); err != nil {
		return fmt.Errorf("appending event %s, %w", e.Key(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	unlock, err := lock(ctx, j.lock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.append(e.Key(), payload); err != nil {
		_ = closeFile(j.cur)
		j.cur = nil // whatever is on disk now is read again next time
		return fmt.Errorf("appending event %s, %w", e.Key(), err)
	}
	return nil
}

func (j *Journal) append(key string, payload []byte) error {
	if err := j.refresh(); err != nil {
		return err
	}
	if j.keys[key] {
		return nil
	}
	if j.end > j.opts.SegmentAt {
		if err := j.roll(); err != nil {
			return err
		}
	}
	frame := appendFrame(nil, payload)
	if _, err := j.cur.WriteAt(frame, j.end); err != nil {
		return err
	}
	if err := j.cur.Sync(); err != nil {
		return err
	}
	j.end += int64(len(frame))
	j.keys[key] = true
	return nil
}

// refresh opens the newest file, reads what others appended, and cuts off a torn end.
func (j *Journal) refresh() error {
	files, err := j.files()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		files = []string{j.file(1)}
	}
	newest := files[len(files)-1]
	if j.cur == nil || j.cur.Name() != newest {
		if err := j.open(files); err != nil {
			return err
		}
	}
	if j.end, err = scanFrames(j.cur, j.end, j.learn); err != nil {
		return err
	}
	return j.cur.Truncate(j.end)
}

func (j *Journal) open(files []string) error {
	_ = closeFile(j.cur)
	j.cur, j.end, j.keys = nil, 0, map[string]bool{}
	if n := len(files); n > 1 {
		before, err := os.Open(files[n-2])
		if err != nil {
			return err
		}
		_, err = scanFrames(before, 0, j.learn)
		if err = errors.Join(err, before.Close()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_RDWR|os.O_CREATE, 0o600)
	j.cur = f
	return err
}

func (j *Journal) learn(payload []byte) error {
	e, err := j.unpack(payload)
	if err != nil {
		return err
	}
	j.keys[e.Key()] = true
	return nil
}

// roll begins a new file and removes those that nobody wants to read any more.
func (j *Journal) roll() error {
	files, err := j.files()
	if err != nil {
		return err
	}
	for _, name := range files[:max(len(files)-2, 0)] {
		if info, err := os.Stat(name); err == nil && j.opts.Now().Sub(info.ModTime()) > j.opts.Keep {
			_ = os.Remove(name) // one that stays is tried again at the next roll
		}
	}
	var n int
	if _, err := fmt.Sscanf(filepath.Base(files[len(files)-1]), "journal-%d.log", &n); err != nil {
		return err
	}
	next := j.file(n + 1)
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		return err
	}
	return j.open(append(files, next))
}

// Read yields the matching events, oldest first. It takes no lock: a frame that is being written looks torn and is left out.
func (j *Journal) Read(ctx context.Context, q nodes.Query) iter.Seq2[nodes.Event, error] {
	return func(yield func(nodes.Event, error) bool) {
		var newest []nodes.Event // with a limit, the last events that matched
		emit := func(e nodes.Event) bool {
			if q.Limit == 0 {
				return yield(e, nil)
			}
			if newest = append(newest, e); len(newest) > q.Limit {
				newest = newest[1:]
			}
			return true
		}
		if err := j.scan(ctx, q, emit); err != nil {
			if !errors.Is(err, errStop) {
				yield(nodes.Event{}, err)
			}
			return
		}
		for _, e := range newest {
			if !yield(e, nil) {
				return
			}
		}
	}
}

var errStop = errors.New("the reader has enough")

func (j *Journal) scan(ctx context.Context, q nodes.Query, emit func(nodes.Event) bool) error {
	files, err := j.files()
	if err != nil {
		return err
	}
	for i, name := range files {
		if i < len(files)-2 && endedBefore(name, q.Since) {
			continue
		}
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) { // expired meanwhile
			continue
		}
		if err != nil {
			return err
		}
		_, err = scanFrames(f, 0, func(payload []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			e, err := j.unpack(payload)
			if err != nil {
				return fmt.Errorf("reading %s, %w", name, err)
			}
			if q.Matches(e) && !emit(e) {
				return errStop
			}
			return nil
		})
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// endedBefore tells whether a file was last appended to well before a time, so that no event in it can be of that time or later:
// whoever follows the journal need not read all of it again and again. An hour is more than clocks differ.
func endedBefore(name string, t time.Time) bool {
	info, err := os.Stat(name)
	return err == nil && !t.IsZero() && info.ModTime().Add(time.Hour).Before(t)
}

func (j *Journal) file(n int) string { return filepath.Join(j.dir, fmt.Sprintf("journal-%06d.log", n)) }

func (j *Journal) files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(j.dir, "journal-*.log"))
	slices.Sort(files)
	return files, err
}
