package record

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// packedMap is an assignment map of schema 3 as it is stored. What has an entry per slot or per
// worker is in columns, one after the other. Each is the number of its entries and then the
// entries, all as unsigned varints:
//
//	workers     for each: how many bytes of the ID are those of the ID before, how many
//	            follow, those, and the claim
//	restarting  places in workers
//	owner       of each slot: a place in workers plus one; 0: nobody
//	since       of each slot: how many versions before the map's own
//	moves       slots; then for each the next owner as in owner, then for each the version
//	            as in since
//	taking      slots
//	former      of each slot of the old generation: the owner as in owner
//
// Slots and places ascend, and are kept as the distance to the one before, the first to -1.
// Large columns are compressed (DEFLATE, RFC 1951): a server takes payloads of up to 1 MB by
// default, and the map of 65,536 slots and 10,000 workers must fit whatever goes on.
type packedMap struct {
	Schema        int               `json:"schema"`
	Version       uint64            `json:"version"`
	Epoch         uint64            `json:"epoch"`
	Leader        Process           `json:"leader"`
	Layout        int               `json:"layout"`
	Slots         int               `json:"slots"`
	FirstAssigned time.Time         `json:"first_assigned"`
	Planned       time.Time         `json:"planned"`
	Overrides     uint64            `json:"pins,omitempty"`
	Moved         int               `json:"moved"`
	Former        *packedGeneration `json:"former,omitempty"`
	// Inflated is how long the columns are when they are not compressed; 0: they aren't.
	Inflated int    `json:"inflated,omitempty"`
	Columns  []byte `json:"columns"`
}

// packedGeneration is the old generation without its owners.
type packedGeneration struct {
	Layout  int    `json:"layout"`
	Slots   int    `json:"slots"`
	Version uint64 `json:"version"`
}

// deflateAbove is from how many bytes on columns are compressed. A map of 1,024 slots has
// fewer, so most groups have maps that any tool can show.
const deflateAbove = 8 << 10

// pack returns the map as it is stored.
func (a *Assignment) pack() *packedMap {
	p := &packedMap{Schema: a.Schema, Version: a.Version, Epoch: a.Epoch, Leader: a.Leader, Layout: a.Layout, Slots: a.Slots,
		FirstAssigned: a.FirstAssigned, Planned: a.Planned, Overrides: a.Overrides, Moved: a.Moved}
	var former OwnerColumn
	if f := a.Former; f != nil {
		p.Former, former = &packedGeneration{Layout: f.Layout, Slots: f.Slots, Version: f.Version}, f.Owner
	}

	var w columnWriter
	w.workers(a.Workers)
	w.ascending(slices.Sorted(maps.Keys(a.Restarting)))
	w.owners(a.Owner)
	w.count(len(a.Since))
	for _, v := range a.Since {
		w.add(a.Version - v)
	}
	w.moves(a.Moves, a.Version)
	w.ascending(slices.Sorted(maps.Keys(a.Taking)))
	w.owners(former)

	p.Columns = w.bytes
	if len(w.bytes) > deflateAbove {
		p.Columns, p.Inflated = deflate(w.bytes), len(w.bytes)
	}
	return p
}

// unpack returns the map that is stored so. Workers that are known need not be read.
func (p *packedMap) unpack(known *knownWorkers) (*Assignment, error) {
	columns := p.Columns
	if p.Inflated != 0 {
		var err error
		if columns, err = inflate(p.Columns, p.Inflated); err != nil {
			return nil, err
		}
	}

	a := &Assignment{Schema: p.Schema, Version: p.Version, Epoch: p.Epoch, Leader: p.Leader, Layout: p.Layout, Slots: p.Slots,
		FirstAssigned: p.FirstAssigned, Planned: p.Planned, Overrides: p.Overrides, Moved: p.Moved}
	r := columnReader{bytes: columns}
	a.Workers = known.read(&r)
	a.Restarting = r.set("restarting")
	a.Owner = r.owners("owner")
	a.Since = r.since(p.Version)
	a.Moves = r.moves(p.Version)
	a.Taking = r.set("taking")
	former := r.owners("former")
	if p.Former != nil {
		a.Former = &OldGeneration{Layout: p.Former.Layout, Slots: p.Former.Slots, Version: p.Former.Version, Owner: former}
	}
	if r.err == nil && len(r.bytes) > 0 {
		r.err = fmt.Errorf("columns: %d bytes follow the last one", len(r.bytes))
	}
	return a, r.err
}

func (a *Assignment) unmarshalPacked(data []byte, known *knownWorkers) error {
	var p packedMap
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	if err := checkSchema(p.Schema, MapSchema, MapSchema); err != nil {
		return err
	}
	unpacked, err := p.unpack(known)
	if err != nil {
		return err
	}
	*a = *unpacked
	return nil
}

func deflate(data []byte) []byte {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err != nil {
		panic(fmt.Sprintf("partition: the level is a known one, yet: %v", err))
	}
	_, err = w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(fmt.Sprintf("partition: bytes are compressed in memory, yet: %v", err))
	}
	return out.Bytes()
}

// inflate returns what was compressed, if it has just that length.
func inflate(data []byte, length int) ([]byte, error) {
	if length < 0 || length > maxMapBytes {
		return nil, fmt.Errorf("columns: inflated is %d bytes, at most %d are read", length, maxMapBytes)
	}
	r := inflaters.Get().(io.Reader)
	defer inflaters.Put(r)
	if err := r.(flate.Resetter).Reset(bytes.NewReader(data), nil); err != nil {
		return nil, fmt.Errorf("columns: decompressing %d bytes: %w", length, err)
	}

	out := make([]byte, length)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, fmt.Errorf("columns: decompressing %d bytes: %w", length, err)
	}
	if n, _ := r.Read(make([]byte, 1)); n > 0 {
		return nil, fmt.Errorf("columns: more than the %d bytes that inflated says", length)
	}
	return out, nil
}

// inflaters are decompressors that are used again: each has a window of 32 KB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}

// columnWriter appends columns.
type columnWriter struct{ bytes []byte }

func (w *columnWriter) add(v uint64)  { w.bytes = binary.AppendUvarint(w.bytes, v) }
func (w *columnWriter) count(n int)   { w.add(uint64(n)) }
func (w *columnWriter) owner(i int32) { w.add(uint64(i + 1)) }

func (w *columnWriter) workers(workers []Process) {
	w.count(len(workers))
	before := ""
	for _, p := range workers {
		shared := 0
		for shared < min(len(before), len(p.ID)) && before[shared] == p.ID[shared] {
			shared++
		}
		w.count(shared)
		w.count(len(p.ID) - shared)
		w.bytes = append(w.bytes, p.ID[shared:]...)
		w.add(p.Claim)
		before = p.ID
	}
}

// ascending writes numbers that ascend, by distance.
func (w *columnWriter) ascending(numbers []int) {
	w.count(len(numbers))
	before := -1
	for _, n := range numbers {
		w.count(n - before)
		before = n
	}
}

func (w *columnWriter) owners(owners OwnerColumn) {
	w.count(len(owners))
	for _, i := range owners {
		w.owner(i)
	}
}

func (w *columnWriter) moves(moves MoveTable, version uint64) {
	slots := slices.Sorted(maps.Keys(moves))
	w.ascending(slots)
	for _, s := range slots {
		w.owner(moves[s].Next)
	}
	for _, s := range slots {
		w.add(version - moves[s].Version)
	}
}

// columnReader reads columns in the order in which they were written. After an error, which
// names the column, it reads nothing more.
type columnReader struct {
	bytes []byte
	err   error
}

func (r *columnReader) fail(column string, entry int, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: entry %d: %s", column, entry, fmt.Sprintf(format, args...))
	}
}

func (r *columnReader) next(column string, entry int) uint64 {
	if r.err != nil {
		return 0
	}
	// Most entries are below 128: one byte.
	if len(r.bytes) > 0 && r.bytes[0] < 0x80 {
		v := r.bytes[0]
		r.bytes = r.bytes[1:]
		return uint64(v)
	}

	v, n := binary.Uvarint(r.bytes)
	if n <= 0 {
		r.fail(column, entry, "not a varint of at most 64 bits")
		return 0
	}
	r.bytes = r.bytes[n:]
	return v
}

// count reads the number of a column's entries, of which each has at least one byte.
func (r *columnReader) count(column string) int {
	n := r.next(column, -1)
	if n > uint64(len(r.bytes)) {
		r.fail(column, -1, "%d entries, and %d bytes are left", n, len(r.bytes))
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *columnReader) owner(column string, entry int) int32 {
	v := r.next(column, entry)
	if v > math.MaxInt32 {
		r.fail(column, entry, "%d is more than a worker's index can be", v)
		return None
	}
	return int32(v) - 1
}

// maxPackedID bounds a worker's ID in bytes. Without a bound a few bytes for each worker
// could ask for IDs that share a long beginning, and so for any amount of memory.
const maxPackedID = 1 << 10

// maxPackedIDs bounds the IDs of all workers in bytes, once none is shortened: 65,536 workers
// have IDs of 256 bytes each.
const maxPackedIDs = 16 << 20

func (r *columnReader) workers() []Process {
	const column = "workers"
	out := make([]Process, r.count(column))
	var ids idReader
	for i := range out {
		shared, own := r.next(column, i), r.next(column, i)
		if shared > uint64(ids.last()) || own > uint64(len(r.bytes)) {
			r.fail(column, i, "an ID has %d bytes of one of %d, and %d of %d that are left", shared, ids.last(), own, len(r.bytes))
		} else if shared+own > maxPackedID {
			r.fail(column, i, "an ID of %d bytes, at most %d are read", shared+own, maxPackedID)
		}
		if len(ids.bytes) > maxPackedIDs {
			r.fail(column, i, "IDs of %d bytes, at most %d are read", len(ids.bytes), maxPackedIDs)
		}
		if r.err != nil {
			return nil
		}

		ids.add(int(shared), r.bytes[:own])
		r.bytes = r.bytes[own:]
		out[i].Claim = r.next(column, i)
	}

	for i, id := range ids.all() {
		out[i].ID = id
	}
	return out
}

// idReader puts IDs together of which each shares its beginning with the one before. All are
// parts of one string: every worker reads those of all others with each map.
type idReader struct {
	bytes []byte // the IDs, one after the other
	ends  []int  // where each ends
}

// last returns the length of the ID that was added last.
func (r *idReader) last() int {
	switch n := len(r.ends); n {
	case 0:
		return 0
	case 1:
		return r.ends[0]
	default:
		return r.ends[n-1] - r.ends[n-2]
	}
}

// add adds an ID: the first bytes of the one before, and its own.
func (r *idReader) add(shared int, own []byte) {
	before := len(r.bytes) - r.last()
	r.bytes = append(r.bytes, r.bytes[before:before+shared]...)
	r.bytes = append(r.bytes, own...)
	r.ends = append(r.ends, len(r.bytes))
}

func (r *idReader) all() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		joined, start := string(r.bytes), 0
		for i, end := range r.ends {
			if !yield(i, joined[start:end]) {
				return
			}
			start = end
		}
	}
}

// ascending reads numbers that ascend, at most maxPlace.
func (r *columnReader) ascending(column string) []int {
	out := make([]int, r.count(column))
	before := -1
	for i := range out {
		step := r.next(column, i)
		if step < 1 || step > uint64(maxPlace-before) {
			r.fail(column, i, "%d is followed by one that is %d further, want 1 to %d", before, step, maxPlace-before)
		}
		if r.err != nil {
			return nil
		}
		before += int(step)
		out[i] = before
	}
	return out
}

// maxPlace is the highest slot, or place of a worker, that is read.
const maxPlace = 1<<20 - 1

func (r *columnReader) set(column string) map[int]bool {
	numbers := r.ascending(column)
	out := make(map[int]bool, len(numbers))
	for _, n := range numbers {
		out[n] = true
	}
	return out
}

func (r *columnReader) owners(column string) OwnerColumn {
	out := make(OwnerColumn, r.count(column))
	for s, v := range r.short(column, len(out)) {
		if v > math.MaxInt32 {
			r.fail(column, s, "%d is more than a worker's index can be", v)
			v = 0
		}
		out[s] = int32(v) - 1
	}
	return out
}

func (r *columnReader) since(version uint64) VersionColumn {
	const column = "since"
	out := make(VersionColumn, r.count(column))
	for s, v := range r.short(column, len(out)) {
		out[s] = version - v
	}
	return out
}

// short reads n entries of which most have one or two bytes. A large map has thousands of them, so those are
// read without a call, and without a write to r, for each. What follows an error has no meaning.
func (r *columnReader) short(column string, n int) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		rest := r.bytes
		for i := range n {
			var v uint64
			switch {
			case len(rest) > 0 && rest[0] < 0x80:
				v, rest = uint64(rest[0]), rest[1:]
			case len(rest) > 1 && rest[1] < 0x80:
				v, rest = uint64(rest[0]&0x7f)|uint64(rest[1])<<7, rest[2:]
			default:
				r.bytes = rest
				v = r.next(column, i)
				rest = r.bytes
			}
			if !yield(i, v) {
				break
			}
		}
		r.bytes = rest
	}
}

func (r *columnReader) moves(version uint64) MoveTable {
	slots := r.ascending("moves")
	next := make([]int32, len(slots))
	for i := range next {
		next[i] = r.owner("moves", i)
	}
	out := make(MoveTable, len(slots))
	for i, s := range slots {
		out[s] = Move{Next: next[i], Version: version - r.next("moves", i)}
	}
	return out
}

// currentHead begins each map that this version writes.
var currentHead = fmt.Appendf(nil, `{"schema":%d,"version":`, MapSchema)

// mapSchemaOf returns the schema of a map, if it is one that is read. Every worker reads every
// map, and a large group's is mostly one long string, so one that this version wrote is not
// parsed for its schema first. A map that names its schema again further on is rejected where
// the rest is read, if that is another one.
func mapSchemaOf(data []byte) (int, error) {
	if bytes.HasPrefix(data, currentHead) {
		return MapSchema, nil
	}
	return readSchema(data, OldestMapSchema, MapSchema)
}

// Encode returns the map as it is stored.
func (a *Assignment) Encode() []byte { return Encode(a.pack()) }
