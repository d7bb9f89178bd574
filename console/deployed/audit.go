package deployed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/muster-dev/muster/console"
)

// Audit is a file of the commands that were given on a console, one line of JSON each. It is only appended to.
type Audit struct {
	before []audited // what it held when it was opened, oldest first

	mu   sync.Mutex
	file *os.File
}

// OpenAudit opens an audit file, which is created if need be, readable by its owner alone. A last line without its end, as a crash leaves
// it, is cut off. Every other line that is no command is an error.
func OpenAudit(path string) (*Audit, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	a := &Audit{file: f}
	whole, err := a.load(f)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return a, nil
}

// load reads the commands, and returns where the last whole line ends.
func (a *Audit) load(f fs.File) (whole int64, err error) {
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
		var d audited
		if err := json.Unmarshal(line, &d); err != nil || d.At.IsZero() || d.Name == "" {
			return whole, fmt.Errorf("line %d is no command: move the file away, or name another", n)
		}
		a.before = append(a.before, d)
		whole += int64(len(line))
	}
}

// audited is a line of the file.
type audited struct {
	console.Done
	Group string `json:"group"`
}

// of returns the commands that were given on the console of a group. A nil Audit has none.
func (a *Audit) of(group string) []console.Done {
	if a == nil {
		return nil
	}
	var out []console.Done
	for _, d := range a.before {
		if d.Group == group {
			out = append(out, d.Done)
		}
	}
	return out
}

// record writes the commands of a group.
func (a *Audit) record(group string) func(console.Done) error {
	return func(d console.Done) error {
		b, err := json.Marshal(audited{d, group})
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if _, err := a.file.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("writing %s: %w", a.file.Name(), err)
		}
		return a.file.Sync()
	}
}

// Close closes the file.
func (a *Audit) Close() error { return a.file.Close() }
