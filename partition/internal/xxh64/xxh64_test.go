package xxh64

import "testing"

// sanity returns the first n bytes that the reference's tests hash: those of its
// tests/sanity_test.c.
func sanity(n int) []byte {
	const (
		prime32 = 2654435761
		prime64 = 11400714785074694797
	)
	out := make([]byte, n)
	gen := uint64(prime32)
	for i := range out {
		out[i] = byte(gen >> 56)
		gen *= prime64
	}
	return out
}

func TestSum(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   []byte
		want uint64
	}{
		// Of the reference, with seed 0: tests/sanity_test_vectors.h.
		{"reference, 0 bytes", sanity(0), 0xEF46DB3751D8E999},
		{"reference, 1 byte", sanity(1), 0xE934A84ADB052768},
		{"reference, 4 bytes", sanity(4), 0x9136A0DCA57457EE},
		{"reference, 14 bytes", sanity(14), 0x8282DCC4994E35C8},
		{"reference, 222 bytes", sanity(222), 0xB641AE8CB691C174},
		// Of github.com/cespare/xxhash.
		{"a", []byte("a"), 0xd24ec4f1a98c6e5b},
		{"as", []byte("as"), 0x1c330fb2d66be179},
		{"asd", []byte("asd"), 0x631c37ce72a97393},
		{"asdf", []byte("asdf"), 0x415872f599cea71e},
		{"63 bytes, all branches", []byte("Call me Ishmael. Some years ago--never mind how long precisely-"), 0x02a2e85470d6fd96},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Sum(tt.in); got != tt.want {
				t.Errorf("Sum is %#x, want %#x", got, tt.want)
			}
		})
	}
}

// FuzzSum: no length reads out of bounds, and a changed byte changes the hash.
func FuzzSum(f *testing.F) {
	for _, n := range []int{0, 1, 7, 8, 31, 32, 33, 64, 100} {
		f.Add(sanity(n), n/2)
	}
	f.Fuzz(func(t *testing.T, b []byte, i int) {
		before := Sum(b)
		if i < 0 || i >= len(b) {
			return
		}
		changed := append([]byte(nil), b...)
		changed[i] ^= 1
		if Sum(changed) == before {
			t.Errorf("byte %d of %x changed, and its hash, %#x, did not", i, b, before)
		}
	})
}
