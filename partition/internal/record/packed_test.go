package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// payloadLimit is what a NATS server takes by default, less what the headers of a write need.
const payloadLimit = 1<<20 - 4<<10

// largeMap is a map of workers and slots whose owners and versions have nothing in common, as
// after years of rebalances: the least compressible that a group can get to.
func largeMap(rng *rand.Rand, workers, slots int) *Assignment {
	a := &Assignment{Schema: MapSchema, Version: RaisedVersion(goldenTime()) + 20_000, Epoch: 1 << 40, Layout: 2, Slots: slots, FirstAssigned: goldenTime(), Planned: goldenTime(),
		Moves: make(MoveTable), Taking: make(map[int]bool), Restarting: make(map[int]bool)}
	for i := range workers {
		a.Workers = append(a.Workers, Process{ID: fmt.Sprintf("defender-%d", i), Claim: 1 + rng.Uint64N(1<<32)})
	}
	a.Leader = a.Workers[0]
	for range slots {
		a.Owner = append(a.Owner, int32(rng.IntN(workers)))
		a.Since = append(a.Since, a.Version-rng.Uint64N(10_000))
	}
	return a
}

// phases are what a group can be doing, each at its largest.
var phases = []struct {
	name  string
	enter func(*rand.Rand, *Assignment)
}{
	{"stable", func(*rand.Rand, *Assignment) {}},
	{"all moving", moveAll},
	{"all taken over", takeAll},
	{"two generations", addFormer},
	{"all restarting", func(_ *rand.Rand, a *Assignment) {
		for i := range a.Workers {
			a.Restarting[i] = true
		}
	}},
	{"every second of all at once", func(rng *rand.Rand, a *Assignment) {
		addFormer(rng, a)
		moveAll(rng, a)
		takeAll(rng, a)
		maps.DeleteFunc(a.Moves, func(int, Move) bool { return rng.IntN(2) == 0 })
		maps.DeleteFunc(a.Taking, func(int, bool) bool { return rng.IntN(2) == 0 })
		for i := range a.Workers {
			if rng.IntN(2) == 0 {
				a.Restarting[i] = true
			}
		}
	}},
}

func moveAll(rng *rand.Rand, a *Assignment) {
	for s := range a.Slots {
		a.Moves[s] = Move{Next: int32(rng.IntN(len(a.Workers))), Version: a.Version - rng.Uint64N(4)}
	}
}

func takeAll(_ *rand.Rand, a *Assignment) {
	for s := range a.Slots {
		a.Taking[s] = true
	}
}

func addFormer(rng *rand.Rand, a *Assignment) {
	a.Former = &OldGeneration{Layout: 1, Slots: max(a.Slots/2, 1), Version: a.Version - 1}
	for range a.Former.Slots {
		a.Former.Owner = append(a.Former.Owner, int32(rng.IntN(len(a.Workers)+1))-1)
	}
}

// TestMapSize: whatever the largest group is doing, its map can be written to a server with the
// default limit, and is read as it was.
func TestMapSize(t *testing.T) {
	t.Parallel()
	for _, phase := range phases {
		t.Run(phase.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, 7))
			a := largeMap(rng, 10_000, MaxSlots)
			phase.enter(rng, a)

			data := a.Encode()
			before := *a
			before.Schema = 2
			t.Logf("%d bytes, %d in schema 2", len(data), len(Encode(&before)))
			if len(data) > payloadLimit {
				t.Errorf("%d bytes, at most %d can be written", len(data), payloadLimit)
			}

			got, err := DecodeAssignment(data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, a) {
				t.Error("it is read as another map")
			}
		})
	}
}

// TestMapRoundTrip: maps of any size and phase are read as they were written.
func TestMapRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		a := largeMap(rng, 1+rng.IntN(40), 1<<rng.IntN(13))
		if rng.IntN(2) == 0 {
			a.Owner[rng.IntN(a.Slots)] = None
		}
		phase := phases[rng.IntN(len(phases))]
		phase.enter(rng, a)
		maps.DeleteFunc(a.Taking, func(s int, _ bool) bool { return a.Owner[s] == None })

		got, err := DecodeAssignment(a.Encode())
		if err != nil {
			t.Fatalf("%s, %d slots: %v", phase.name, a.Slots, err)
		}
		if !reflect.DeepEqual(got, a) {
			t.Fatalf("%s, %d slots: it is read as another map", phase.name, a.Slots)
		}
	}
}

// TestPackedMapFaults: columns that no worker writes are rejected, with the name of the column.
func TestPackedMapFaults(t *testing.T) {
	t.Parallel()
	columns := func(values ...uint64) []byte {
		var w columnWriter
		for _, v := range values {
			w.add(v)
		}
		return w.bytes
	}
	large := largeMap(rand.New(rand.NewPCG(1, 1)), 300, 1<<14).pack()
	for name, tt := range map[string]struct {
		packed packedMap
		want   string
	}{
		"nothing":                     {packedMap{}, "workers: entry -1: not a varint"},
		"more workers than bytes":     {packedMap{Columns: columns(3, 0)}, "workers: entry -1: 3 entries"},
		"an ID that begins with none": {packedMap{Columns: columns(1, 1, 0)}, "workers: entry 0: an ID"},
		"a slot twice":                {packedMap{Columns: columns(0, 2, 1, 0)}, "restarting: entry 1"},
		"an owner beyond":             {packedMap{Columns: columns(0, 0, 1, 1<<31, 0)}, "owner: entry 0"},
		"the end missing":             {packedMap{Columns: columns(0, 0, 0, 0)}, "moves: entry -1: not a varint"},
		"something after the end":     {packedMap{Columns: columns(0, 0, 0, 0, 0, 0, 0, 9)}, "1 bytes follow"},
		"long IDs in all":             {packedMap{Columns: longIDs()}, "at most 16777216 are read"},
		"a long ID":                   {packedMap{Columns: slices.Concat(columns(1, 0, maxPackedID+1), make([]byte, maxPackedID+2))}, "an ID of 1025 bytes"},
		"no DEFLATE":                  {packedMap{Inflated: 9, Columns: []byte("nonsense")}, "decompressing"},
		"shorter than it says":        {packedMap{Inflated: large.Inflated + 1, Columns: large.Columns}, "decompressing"},
		"longer than it says":         {packedMap{Inflated: large.Inflated - 1, Columns: large.Columns}, "more than"},
		"too long":                    {packedMap{Inflated: maxMapBytes + 1}, "at most"},
		"a negative length":           {packedMap{Inflated: -1}, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := tt.packed.unpack(nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestCompressedRecord reads the golden file of a map whose columns are compressed. Another
// version of the compressor may write other bytes, so they are not compared.
func TestCompressedRecord(t *testing.T) {
	t.Parallel()
	a := largeMap(rand.New(rand.NewPCG(3, 3)), 40, 4096)
	for _, phase := range phases[1:4] {
		phase.enter(rand.New(rand.NewPCG(4, 4)), a)
	}
	file := filepath.Join("testdata", "assignment-map.3-compressed.json")
	if *writeRecords {
		if err := os.WriteFile(file, a.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p packedMap
	if err := json.Unmarshal(data, &p); err != nil || p.Inflated == 0 {
		t.Fatalf("the golden file isn't compressed: %v", err)
	}
	got, err := DecodeAssignment(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, a) {
		t.Error("it is read as another map")
	}
}

// TestSchema2 writes a map as a worker of schema 2 does, and reads it.
func TestSchema2(t *testing.T) {
	t.Parallel()
	a := goldenMap()
	a.Schema = 2
	want, err := os.ReadFile(goldenFile("assignment-map", 2))
	if err != nil {
		t.Fatal(err)
	}
	if got := Encode(a); !bytes.Equal(got, want) {
		t.Errorf("it is encoded to\n%s\nand the golden file has\n%s", got, want)
	}
	got, err := DecodeAssignment(want)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Owner, a.Owner) || !maps.Equal(got.Moves, a.Moves) || !maps.Equal(got.Taking, a.Taking) {
		t.Errorf("it is read as %+v", got)
	}
}

// longIDs is a column of workers in few bytes whose IDs have more than may be read in all.
func longIDs() []byte {
	n := uint64(maxPackedIDs/maxPackedID + 2)
	var w columnWriter
	w.add(n)
	w.add(0)
	w.add(maxPackedID)
	w.bytes = append(w.bytes, bytes.Repeat([]byte("w"), maxPackedID)...)
	w.add(1)
	for range n - 1 {
		w.add(maxPackedID)
		w.add(0)
		w.add(1)
	}
	return w.bytes
}

// BenchmarkMap measures writing and reading a map, in schema 2 and now.
func BenchmarkMap(b *testing.B) {
	for _, size := range []struct{ workers, slots int }{{45, 1024}, {1000, 8192}, {10_000, MaxSlots}} {
		rng := rand.New(rand.NewPCG(7, 7))
		a := largeMap(rng, size.workers, size.slots)
		settled := a.Encode()
		b.Run(fmt.Sprintf("workers=%d/settled/decode", size.workers), func(b *testing.B) {
			for b.Loop() {
				if _, err := DecodeAssignment(settled); err != nil {
					b.Fatal(err)
				}
			}
		})
		moveAll(rng, a)
		old := *a
		old.Schema = 2
		for name, encode := range map[string]func() []byte{"schema=2": func() []byte { return Encode(&old) }, "schema=3": a.Encode} {
			data := encode()
			b.Run(fmt.Sprintf("workers=%d/%s/encode", size.workers, name), func(b *testing.B) {
				for b.Loop() {
					encode()
				}
				b.ReportMetric(float64(len(data)), "bytes")
			})
			b.Run(fmt.Sprintf("workers=%d/%s/decode", size.workers, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := DecodeAssignment(data); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestSchemaNamedTwice: a map that begins as this version's do, and says further on that it is of
// another schema, is judged by that, as it is where the whole record is parsed for its schema.
func TestSchemaNamedTwice(t *testing.T) {
	t.Parallel()
	data := goldenMap().Encode()
	if !bytes.HasPrefix(data, currentHead) {
		t.Fatalf("it begins with %s, want %s", data[:40], currentHead)
	}
	twice := append(bytes.TrimSuffix(data, []byte("}")), `,"schema":4}`...)
	if _, err := DecodeAssignment(twice); !errors.Is(err, ErrNewerSchema) {
		t.Errorf("error %v, want one of a newer schema", err)
	}
}
