package plan

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/muster-dev/muster/partition/internal/xxh64"
)

// DefaultVirtualNodes is how many points a worker of average capacity has on a
// ring. More points balance better, and cost time and memory in proportion.
const DefaultVirtualNodes = 160

// Ring returns consistent hashing (D. Karger et al., "Consistent Hashing and
// Random Trees", 1997) with virtualNodes points for each worker, in proportion
// to its weight, hashed with 64-bit xxHash (Y. Collet); 150 to 200 are usual,
// and less than 1 means [DefaultVirtualNodes]. A slot belongs to the worker
// whose point follows its own hash on the ring.
//
// It needs no previous plan and moves about as little as can be, but its loads
// spread by about the mean over the square root of virtualNodes on top of what
// the slots' own hashes spread. Slot weights, zones and the budget have no
// effect on it. Overrides are honoured.
func Ring(virtualNodes int) Strategy {
	if virtualNodes < 1 {
		virtualNodes = DefaultVirtualNodes
	}
	return ring{nodes: virtualNodes}
}

type ring struct{ nodes int }

// point is a place on the ring and the worker it belongs to.
type point struct {
	hash   uint64
	worker int32
}

func (r ring) Plan(p Problem) (Plan, error) {
	f, err := newFrame(&p)
	if err != nil {
		return Plan{}, err
	}
	if len(f.takers) == 0 {
		return f.finish(f.stranded()), nil
	}
	points := r.points(f)
	owners := make([]int32, p.Slots)
	var key [8]byte
	for s := range owners {
		if owners[s] = f.overridden(s); owners[s] != None {
			continue
		}
		binary.LittleEndian.PutUint64(key[:], uint64(s))
		hash := xxh64.Sum(key[:])
		i, _ := slices.BinarySearchFunc(points, hash, func(pt point, h uint64) int { return cmp.Compare(pt.hash, h) })
		owners[s] = points[i%len(points)].worker
	}
	return f.finish(owners), nil
}

// points places the workers on the ring, in order of hash.
func (r ring) points(f *frame) []point {
	var all float64
	for _, w := range f.takers {
		all += float64(f.capacity[w])
	}
	points := make([]point, 0, len(f.takers)*(r.nodes+1))
	var key []byte
	for _, w := range f.takers {
		share := float64(f.capacity[w]) / all
		n := max(1, int(math.Round(share*float64(r.nodes*len(f.takers)))))
		for i := range n {
			key = append(key[:0], f.p.Workers[w].ID...)
			key = append(key, '#')
			key = strconv.AppendInt(key, int64(i), 10)
			points = append(points, point{hash: xxh64.Sum(key), worker: w})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		if c := cmp.Compare(a.hash, b.hash); c != 0 {
			return c
		}
		return cmp.Compare(f.rank[a.worker], f.rank[b.worker])
	})
	return points
}
