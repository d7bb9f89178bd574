// Package xxh64 is XXH64, the 64-bit xxHash with seed 0, after its specification:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
//
// Workers place slots by this hash, those of different versions the same way, so it can't
// be replaced by another. It is written here because it is the only thing that package
// partition would need besides the NATS client.
package xxh64

import (
	"encoding/binary"
	"math/bits"
)

const (
	prime1 uint64 = 0x9E3779B185EBCA87
	prime2 uint64 = 0xC2B2AE3D27D4EB4F
	prime3 uint64 = 0x165667B19E3779F9
	prime4 uint64 = 0x85EBCA77C2B2AE63
	prime5 uint64 = 0x27D4EB2F165667C5
)

// stripe is how many bytes the four accumulators take at once.
const stripe = 32

// Sum returns the hash of b.
func Sum(b []byte) uint64 {
	h := prime5
	rest := b
	if len(b) >= stripe {
		h, rest = stripes(b)
	}
	h += uint64(len(b))

	for ; len(rest) >= 8; rest = rest[8:] {
		h ^= round(0, binary.LittleEndian.Uint64(rest))
		h = bits.RotateLeft64(h, 27)*prime1 + prime4
	}
	if len(rest) >= 4 {
		h ^= uint64(binary.LittleEndian.Uint32(rest)) * prime1
		h = bits.RotateLeft64(h, 23)*prime2 + prime3
		rest = rest[4:]
	}
	for _, c := range rest {
		h ^= uint64(c) * prime5
		h = bits.RotateLeft64(h, 11) * prime1
	}

	// The avalanche: every bit of the input changes about half of the result's.
	h ^= h >> 33
	h *= prime2
	h ^= h >> 29
	h *= prime3
	h ^= h >> 32
	return h
}

// stripes takes in all whole stripes of b and returns the rest of b.
func stripes(b []byte) (h uint64, rest []byte) {
	p1, p2 := prime1, prime2 // variables, since their sum and -p1 overflow
	v1, v2, v3, v4 := p1+p2, p2, uint64(0), -p1
	for ; len(b) >= stripe; b = b[stripe:] {
		v1 = round(v1, binary.LittleEndian.Uint64(b))
		v2 = round(v2, binary.LittleEndian.Uint64(b[8:]))
		v3 = round(v3, binary.LittleEndian.Uint64(b[16:]))
		v4 = round(v4, binary.LittleEndian.Uint64(b[24:]))
	}

	h = bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
	for _, v := range []uint64{v1, v2, v3, v4} {
		h ^= round(0, v)
		h = h*prime1 + prime4
	}
	return h, b
}

func round(acc, lane uint64) uint64 {
	return bits.RotateLeft64(acc+lane*prime2, 31) * prime1
}
