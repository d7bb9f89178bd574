package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// share is the part of the processor time that something took.
type share struct {
	name  string
	share float64
}

// parts are what a stack is counted for: the first part that names a function
// anywhere on it, else the one that names the innermost function that any names.
// The collector of garbage works for all.
var parts = []struct {
	name     string
	anywhere bool
	prefixes []string
}{
	{"garbage collection", true, []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
	{"publisher", true, []string{"github.com/muster-dev/muster/e2e.(*publisher)", "github.com/muster-dev/muster/e2e.(*phase)"}},
	{"codec", false, []string{"github.com/muster-dev/muster/defender/tchart"}},
	{"statistics and verdicts", false, []string{"github.com/muster-dev/muster/defender/uchart", "github.com/muster-dev/muster/defender/spc",
		"github.com/muster-dev/muster/defender/pca", "github.com/muster-dev/muster/defender/strategy", "gonum.org/"}},
	{"store", false, []string{"github.com/muster-dev/muster/defender/sqlite", "modernc.org/", "database/sql"}},
	{"NATS server", false, []string{"github.com/nats-io/nats-server"}},
	{"NATS clients", false, []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats%2ego", "github.com/muster-dev/muster/partition"}},
	{"rest of the defender", false, []string{"github.com/muster-dev/muster/defender"}},
}

// restOfTime is the runtime's own and whatever else there is.
const restOfTime = "runtime and others"

// partOf returns the part that a stack, the innermost function first, counts for.
func partOf(stack []string) string {
	has := func(f string, prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f, p) })
	}
	for _, p := range parts {
		if p.anywhere && slices.ContainsFunc(stack, func(f string) bool { return has(f, p.prefixes) }) {
			return p.name
		}
	}
	for _, f := range stack {
		for _, p := range parts {
			if !p.anywhere && has(f, p.prefixes) {
				return p.name
			}
		}
	}
	return restOfTime
}

// shares reads the profile and divides the processor time among the parts, the
// largest first.
func (w *watcher) shares() ([]share, error) {
	f, err := os.Open(w.file.Name())
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	defer func() { _ = f.Close() }()
	return sharesOf(f)
}

func sharesOf(r io.Reader) ([]share, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	data, err := io.ReadAll(zip)
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	var p cpuProfile
	if err := p.read(data); err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	byPart, total := map[string]int64{}, int64(0)
	for _, s := range p.samples {
		byPart[partOf(p.stack(s))] += s.ns
		total += s.ns
	}
	var list []share
	for name, ns := range byPart {
		list = append(list, share{name, float64(ns) / float64(max(total, 1))})
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.name, b.name)) })
	return list, nil
}

// cpuProfile is what is needed of a profile as package runtime/pprof writes it.
//
// Source: github.com/google/pprof/proto/profile.proto
type cpuProfile struct {
	samples   []stackSample
	locations map[uint64][]uint64 // functions, the innermost first
	functions map[uint64]uint64   // names
	names     []string
}

type stackSample struct {
	locations []uint64 // the innermost first
	ns        int64
}

func (p *cpuProfile) stack(s stackSample) []string {
	var names []string
	for _, l := range s.locations {
		for _, f := range p.locations[l] {
			if n := p.functions[f]; n < uint64(len(p.names)) {
				names = append(names, p.names[n])
			}
		}
	}
	return names
}

func (p *cpuProfile) read(data []byte) error {
	p.locations, p.functions = map[uint64][]uint64{}, map[uint64]uint64{}
	return fields(data, func(field int, v uint64, b []byte) error {
		switch field {
		case 2:
			return p.sample(b)
		case 4:
			return p.location(b)
		case 5:
			var id, name uint64
			err := fields(b, func(field int, v uint64, _ []byte) error {
				switch field {
				case 1:
					id = v
				case 2:
					name = v
				}
				return nil
			})
			p.functions[id] = name
			return err
		case 6:
			p.names = append(p.names, string(bytes.Clone(b)))
		}
		return nil
	})
}

func (p *cpuProfile) sample(data []byte) error {
	var s stackSample
	var values []uint64
	err := fields(data, func(field int, v uint64, b []byte) error {
		switch field {
		case 1:
			s.locations = append(s.locations, valuesOf(v, b)...)
		case 2:
			values = append(values, valuesOf(v, b)...)
		}
		return nil
	})
	if len(values) > 1 { // number of samples, then nanoseconds
		s.ns = int64(values[1])
	}
	p.samples = append(p.samples, s)
	return err
}

func (p *cpuProfile) location(data []byte) error {
	var id uint64
	var functions []uint64
	err := fields(data, func(field int, v uint64, b []byte) error {
		switch field {
		case 1:
			id = v
		case 4:
			return fields(b, func(field int, v uint64, _ []byte) error {
				if field == 1 {
					functions = append(functions, v)
				}
				return nil
			})
		}
		return nil
	})
	p.locations[id] = functions
	return err
}

var errProfile = errors.New("it is cut off or none")

// fields calls each for the fields of a protocol buffer: with their number, or
// their bytes.
func fields(data []byte, each func(field int, v uint64, b []byte) error) error {
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return errProfile
		}
		data = data[n:]
		v, n := uint64(0), 0
		var b []byte
		switch tag & 7 {
		case 0:
			v, n = binary.Uvarint(data)
		case 1:
			n = 8
		case 2:
			var length uint64
			if length, n = binary.Uvarint(data); n <= 0 || length > uint64(len(data)-n) {
				return errProfile
			}
			b = data[n : n+int(length)]
			n += int(length)
		case 5:
			n = 4
		}
		if n <= 0 || n > len(data) {
			return errProfile
		}
		data = data[n:]
		if err := each(int(tag>>3), v, b); err != nil {
			return err
		}
	}
	return nil
}

// valuesOf returns the numbers of a repeated field: one, or packed ones.
func valuesOf(v uint64, b []byte) []uint64 {
	if b == nil {
		return []uint64{v}
	}
	var list []uint64
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		list, b = append(list, v), b[n:]
	}
	return list
}
