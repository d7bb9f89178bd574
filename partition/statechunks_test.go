package partition

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster/partition/internal/record"
)

// sentChunk is a chunk on its way.
type sentChunk struct {
	about record.StateChunk
	data  []byte
}

// chunksOf cuts a state.
func chunksOf(t testing.TB, state []byte, chunk int) (out []sentChunk) {
	t.Helper()
	source := newStateSource(iotest.HalfReader(bytes.NewReader(state)), chunk, 1<<20)
	for n := 0; ; n++ {
		data, about, err := source.next()
		if err != nil {
			t.Fatal(err)
		}
		about.Schema, about.Transfer, about.Chunk = record.Schema, "t", n
		out = append(out, sentChunk{about, data})
		if about.Outcome == record.StateLast {
			return out
		}
	}
}

// sinkAll gives chunks to a sink, up to the first error.
func sinkAll(sink *stateSink, chunks []sentChunk) (got []byte, err error) {
	for _, c := range chunks {
		if err := sink.take(c.about, c.data); err != nil {
			return got, err
		}
		got = append(got, c.data...)
	}
	return got, nil
}

func randomState(rng *rand.Rand, n int) []byte {
	state := make([]byte, n)
	for i := range state {
		state[i] = byte(rng.Uint32())
	}
	return state
}

// TestStateChunks: a state of any size comes whole, and no change on its way goes unnoticed.
func TestStateChunks(t *testing.T) {
	t.Parallel()
	const chunk = 16
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 3))
		state := randomState(rng, rng.IntN(6*chunk+1))
		if seed < 4 {
			state = state[:min(len(state), int(seed)*chunk)] // also none, and full chunks alone
		}
		chunks := chunksOf(t, state, chunk)
		sink := newStateSink("t", 1<<20)
		if got, err := sinkAll(sink, chunks); err != nil || !sink.whole || !bytes.Equal(got, state) {
			t.Fatalf("seed %d: %d bytes come as %d, whole %t: %v", seed, len(state), len(got), sink.whole, err)
		}
		for what, damaged := range damages(rng, chunks) {
			sink := newStateSink("t", 1<<20)
			if _, err := sinkAll(sink, damaged); err == nil && sink.whole {
				t.Errorf("seed %d: a state of %d bytes counts as whole with %s", seed, len(state), what)
			}
		}
	}
}

// damages returns what may become of chunks on their way.
func damages(rng *rand.Rand, chunks []sentChunk) map[string][]sentChunk {
	at := rng.IntN(len(chunks))
	out := map[string][]sentChunk{
		"the rest missing":  chunks[:at],
		"one missing":       slices.Delete(slices.Clone(chunks), at, at+1),
		"one twice":         slices.Insert(slices.Clone(chunks), at, chunks[at]),
		"one of another":    changed(chunks, at, func(c *sentChunk) { c.about.Transfer = "u" }),
		"the end in it":     changed(chunks, at, func(c *sentChunk) { c.about.Outcome = record.StateFailed }),
		"nothing in it":     changed(chunks, at, func(c *sentChunk) { c.about.Outcome = record.StateNone }),
		"an early end":      changed(chunks, at, func(c *sentChunk) { c.about.Outcome, c.about.Length = record.StateLast, c.about.Length+1 }),
		"another length":    changed(chunks, len(chunks)-1, func(c *sentChunk) { c.about.Length++ }),
		"another checksum":  changed(chunks, len(chunks)-1, func(c *sentChunk) { c.about.Sum = strings.Repeat("0", 64) }),
		"an additional one": changed(chunks, at, func(c *sentChunk) { c.data = append(slices.Clone(c.data), 1) }),
	}
	if len(chunks[at].data) > 0 {
		out["a bit changed"] = changed(chunks, at, func(c *sentChunk) {
			c.data = slices.Clone(c.data)
			c.data[rng.IntN(len(c.data))] ^= 1 << rng.IntN(8)
		})
	}
	if len(chunks) > 1 && at > 0 {
		swapped := slices.Clone(chunks)
		swapped[at], swapped[at-1] = swapped[at-1], swapped[at]
		out["two swapped"] = swapped
	}
	// One that comes after the last one is rejected, though the state is whole.
	if at == len(chunks)-1 {
		delete(out, "one twice")
	}
	return out
}

func changed(chunks []sentChunk, at int, change func(*sentChunk)) []sentChunk {
	out := slices.Clone(chunks)
	change(&out[at])
	return out
}

// TestStateBounds: neither end takes more than is allowed, and an exporter's error ends the state.
func TestStateBounds(t *testing.T) {
	t.Parallel()
	t.Run("a source that is too large", func(t *testing.T) {
		t.Parallel()
		for _, size := range []int{32, 33} {
			source := newStateSource(bytes.NewReader(make([]byte, size)), 16, 32)
			var err error
			for n := 0; err == nil && n < 9; n++ {
				var about record.StateChunk
				if _, about, err = source.next(); about.Outcome == record.StateLast {
					break
				}
			}
			if tooLarge := size > 32; tooLarge != (err != nil) {
				t.Errorf("%d bytes where 32 are allowed: %v", size, err)
			}
		}
	})
	t.Run("a sink of less than is sent", func(t *testing.T) {
		t.Parallel()
		chunks := chunksOf(t, make([]byte, 33), 16)
		sink := newStateSink("t", 32)
		if _, err := sinkAll(sink, chunks); err == nil || sink.whole || !strings.Contains(err.Error(), "MaxBytes") {
			t.Errorf("33 bytes where 32 are allowed: %v, whole %t", err, sink.whole)
		}
	})
	t.Run("an exporter that fails", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		source := newStateSource(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), 16, 32)
		if _, about, err := source.next(); !errors.Is(err, broken) || about.Outcome != "" {
			t.Errorf("it is sent as %q: %v", about.Outcome, err)
		}
	})
}

// FuzzStateChunk gives a sink whatever comes as headers and data. What it takes as whole has the
// length and the checksum that the last header says, and no more than is allowed.
func FuzzStateChunk(f *testing.F) {
	add := func(chunks []sentChunk) {
		first, last := chunks[0], chunks[len(chunks)-1]
		f.Add(string(record.Encode(first.about)), first.data, string(record.Encode(last.about)), last.data)
	}
	add(chunksOf(f, []byte("a state of two chunks"), 16))
	add(chunksOf(f, nil, 16))
	f.Add(`{"schema":1,"transfer":"t","chunk":-1,"outcome":"more"}`, []byte("x"), `{"schema":2}`, []byte{})
	f.Fuzz(func(t *testing.T, header1 string, data1 []byte, header2 string, data2 []byte) {
		const most = 64
		sink := newStateSink("t", most)
		var got []byte
		for i, header := range []string{header1, header2} {
			data := [][]byte{data1, data2}[i]
			about, err := record.DecodeStateChunk(header)
			if err != nil || sink.take(about, data) != nil {
				break
			}
			if got = append(got, data...); !sink.whole {
				continue
			}
			want := chunksOf(t, got, max(len(got)+1, 1))[0].about
			if len(got) > most || about.Length != want.Length || about.Sum != want.Sum || about.Transfer != "t" {
				t.Errorf("%q counts as whole with %+v", got, about)
			}
		}
	})
}
