package servertest_test

import (
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/partition/internal/xxh64"
)

// FuzzXXH64 compares the hash of package partition with a library that its module does not
// require.
func FuzzXXH64(f *testing.F) {
	b := make([]byte, 100)
	for n := range b {
		b[n] = byte(n * n)
		f.Add(b[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := xxh64.Sum(b), xxhash.Sum64(b); got != want {
			t.Errorf("the hash of %x is %#x, want %#x", b, got, want)
		}
	})
}
