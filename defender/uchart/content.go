package uchart

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
)

// Content returns a hash of the statistics with their SVIDs and steps: of all that
// limits and models take from a chart.
func (c *Chart) Content() uint64 {
	var h xxhash.Digest
	h.Reset()
	var room [1024]byte
	b := room[:0]
	word := func(v uint64) {
		if len(b) > len(room)-8 {
			_, _ = h.Write(b)
			b = b[:0]
		}
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	word(uint64(len(c.SVIDs)))
	for _, name := range c.SVIDs {
		word(xxhash.Sum64String(name))
	}
	word(uint64(len(c.Steps)))
	for _, step := range c.Steps {
		word(uint64(uint32(step)))
	}
	for _, v := range c.Values {
		word(math.Float64bits(v))
	}
	_, _ = h.Write(b)
	_, _ = h.Write(c.Valid)
	return h.Sum64()
}

// content returns the hash of the point's chart, which verdicts keep so that it isn't
// computed again for each context that is judged by it.
func (p *Point) content() uint64 {
	switch {
	case p.Content != 0:
		return p.Content
	case p.Chart == nil:
		return 0
	}
	return p.Chart.Content()
}

// limitsOf names limits by all that they depend on: the rules, as words, and the
// contents of the contexts they rest on, in order. Names of contexts are told but not
// part of the version: chambers use the same ones, and limits don't depend on them.
func limitsOf(points []Point, rules ...uint64) LimitsID {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 8*(len(rules)+len(points)+2)), uint64(len(rules)))
	for _, v := range rules {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(points)))
	for i := range points {
		b = binary.LittleEndian.AppendUint64(b, points[i].content())
	}
	return LimitsID{Version: xxhash.Sum64(b), N: len(points), First: points[0].Context, Last: points[len(points)-1].Context}
}
