package gem

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
)

// The states of a run in the ledger.
const (
	stateOpen       = "open"       // it has started
	stateEnded      = "ended"      // it is whole and on its way to the store
	stateTaken      = "taken"      // it is durable
	stateIncomplete = "incomplete" // samples are missing
	stateRefused    = "refused"    // it can't be stored
)

// entry is a line of the ledger.
type entry struct {
	Run    string              `json:"run"` // tool:chamber/context
	State  string              `json:"state"`
	At     time.Time           `json:"at"` // by this machine's clock
	Reason string              `json:"reason,omitempty"`
	Ref    defender.ContextRef `json:"ref"`
}

// lost reports whether the line says that a run is not taken, which people may look for later.
func (e entry) lost() bool { return e.State == stateIncomplete || e.State == stateRefused }

// open reports whether the line says that something has yet to be done for the run.
func (e entry) open() bool { return e.State == stateOpen || e.State == stateEnded }

const (
	compactAfter = 10_000 // lines, so that the file doesn't grow without end
	keptLost     = 1_000  // lines of runs that were not taken; older ones are dropped
)

// Ledger is the file that says which runs are open, and which were not taken. Its lines are
// durable when a method returns. It is safe for concurrent use. A file is for one process at a
// time, which a lock beside it ensures on Unix.
type Ledger struct {
	name   string
	unlock func() error

	mu    sync.Mutex
	file  *os.File
	open  map[defender.TChartKey]entry
	lost  []entry
	lines int   // that were written since the file was compacted
	fault error // of a write; what follows it could not be read
}

// OpenLedger opens or creates a file. It is an error if another process has it open.
func OpenLedger(name string) (l *Ledger, err error) {
	unlock, err := lockFile(name + ".lock")
	if err != nil {
		return nil, fmt.Errorf("opening the ledger %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()

	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	l = &Ledger{name: name, unlock: unlock, open: map[defender.TChartKey]entry{}}
	if err := l.replay(content); err != nil {
		return nil, fmt.Errorf("opening the ledger %s: %w: restore the file, or name another with --ledger", name, err)
	}
	if err := l.compact(); err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return l, nil
}

// replay notes lines that were written before.
func (l *Ledger) replay(content []byte) error {
	// What follows the last line's end was being written when the machine stopped: no
	// equipment was told of it.
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := e.Ref.Validate(); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		l.note(e)
	}
	return lines.Err()
}

// note takes a line over. The caller holds the lock, or is alone.
func (l *Ledger) note(e entry) {
	key := e.Ref.TChart()
	if e.open() {
		l.open[key] = e
	} else {
		delete(l.open, key)
	}
	if e.lost() {
		l.lost = append(l.lost, e)
		l.lost = l.lost[max(0, len(l.lost)-keptLost):]
	}
}

// compact writes the file again, with what is still of interest. The old one stays until the
// new one is durable. The caller holds the lock, or is alone.
func (l *Ledger) compact() error {
	var content []byte
	refs := slices.SortedFunc(maps.Values(l.open), func(a, b entry) int { return a.At.Compare(b.At) })
	for _, e := range slices.Concat(l.lost, refs) {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		content = append(append(content, line...), '\n')
	}
	if err := replace(l.name, content); err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close() // it has another file's content now, and all of that was durable
	}
	var err error
	l.lines = 0
	l.file, err = os.OpenFile(l.name, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// replace puts content in the place of a file, durably.
func replace(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".ledger-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(name))
}

// syncFolder makes a new name in a folder durable.
func syncFolder(name string) error {
	if runtime.GOOS == "windows" { // where a folder can't be synced
		return nil
	}
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// write adds a line and waits until it is durable.
func (l *Ledger) write(e entry) error {
	e.Run, e.At = e.Ref.TChart().String(), time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return l.fault
	}
	if _, err = l.file.Write(append(line, '\n')); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.fault = fmt.Errorf("writing the ledger: %w: make room and start again", err)
		return l.fault
	}

	l.note(e)
	l.lines++
	if l.lines < compactAfter {
		return nil
	}
	if err := l.compact(); err != nil {
		l.fault = fmt.Errorf("compacting the ledger: %w: make room and start again", err)
	}
	return l.fault
}

// unfinished returns the last lines of the runs that are open.
func (l *Ledger) unfinished() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.open), func(a, b entry) int { return a.At.Compare(b.At) })
}

// Close closes the file.
func (l *Ledger) Close() error { return errors.Join(l.file.Close(), l.unlock()) }
