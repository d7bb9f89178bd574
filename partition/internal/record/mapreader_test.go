package record

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// sameAsAlone fails the test unless a reader reads a map as it is read alone.
func sameAsAlone(t *testing.T, r *MapReader, what string, data []byte) {
	t.Helper()
	want, wantErr := DecodeAssignment(data)
	got, err := r.Decode(data)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%s: the error is %v, that of the map alone %v", what, err, wantErr)
	}
	if err == nil && !bytes.Equal(got.Encode(), want.Encode()) {
		t.Fatalf("%s: read as %s, alone as %s", what, got.Encode(), want.Encode())
	}
}

// TestMapReader reads maps of a group one after the other: workers that stay, come and go, and maps that are
// rejected.
func TestMapReader(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	a := largeMap(rng, 300, 2048)
	var r MapReader
	for _, phase := range phases {
		b := a.Clone()
		phase.enter(rng, b)
		sameAsAlone(t, &r, phase.name, b.Encode())
		b.Version++
		sameAsAlone(t, &r, phase.name+", again", b.Encode())
	}

	more := largeMap(rng, 301, 2048)
	sameAsAlone(t, &r, "a worker more", more.Encode())
	nameless := more.Clone()
	nameless.Workers[7].ID = ""
	for range 2 { // the first must not make the second one valid
		sameAsAlone(t, &r, "a worker without a name", nameless.Encode())
	}
	sameAsAlone(t, &r, "valid again", more.Encode())
	late := more.Clone()
	late.Since[5] = late.Version + 1
	sameAsAlone(t, &r, "known workers, and a fault elsewhere", late.Encode())
	old := *more
	old.Schema = 2
	sameAsAlone(t, &r, "schema 2", Encode(&old))
	sameAsAlone(t, &r, "the first group", a.Encode())
	sameAsAlone(t, &r, "no workers", largeMap(rng, 1, 16).Encode())
	sameAsAlone(t, &r, "cut off", a.Encode()[:500])
	sameAsAlone(t, &r, "whole again", a.Encode())
}

// FuzzMapReader: what was read before makes no difference.
func FuzzMapReader(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 3))
	small, other := largeMap(rng, 3, 8), largeMap(rng, 4, 8)
	f.Add(small.Encode(), other.Encode())
	f.Add(other.Encode(), small.Encode())
	f.Fuzz(func(t *testing.T, before, data []byte) {
		var r MapReader
		_, _ = r.Decode(before)
		sameAsAlone(t, &r, "after another", data)
	})
}

// BenchmarkMapReader reads the maps that are written while slots of a large group move.
func BenchmarkMapReader(b *testing.B) {
	for _, size := range []struct{ workers, slots int }{{45, 1024}, {1000, 4096}, {10_000, MaxSlots}} {
		a := largeMap(rand.New(rand.NewPCG(7, 7)), size.workers, size.slots)
		for i := range a.Workers { // numbers as those of a group that has just begun
			a.Workers[i].Claim = uint64(100 + 3*i)
		}
		for s := range a.Since {
			a.Since[s] = a.Version - uint64(s%3)
		}
		data := a.Encode()
		b.Run(fmt.Sprintf("workers=%d/alone", size.workers), func(b *testing.B) {
			for b.Loop() {
				if _, err := DecodeAssignment(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("workers=%d/known", size.workers), func(b *testing.B) {
			var r MapReader
			for b.Loop() {
				if _, err := r.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
