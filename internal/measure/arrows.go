package main

import (
	"go/types"
	"maps"
	"slices"
)

// arrows are the references between the files of one package: from a file to each other
// file that declares a name which it uses. Names are those of the package level, and
// methods and fields. A pair of files has one arrow a direction, however many names are used.
type arrows struct {
	files []string // sorted
	to    map[string]map[string]bool
}

// with adds the references of a package. A directory has one package and perhaps a command.
func (a arrows) with(t *tree, u *unit, info *types.Info) arrows {
	if a.to == nil {
		a.to = make(map[string]map[string]bool)
	}
	here := make(map[string]bool)
	for _, f := range u.files {
		// What a generator writes can't be put into another order.
		if f.generated {
			continue
		}
		here[f.path] = true
		a.to[f.path] = make(map[string]bool)
	}
	for id, obj := range info.Uses {
		from := t.fset.Position(id.Pos()).Filename
		to := t.fset.Position(obj.Pos()).Filename
		if from != to && here[from] && here[to] {
			a.to[from][to] = true
		}
	}
	a.files = slices.Sorted(maps.Keys(a.to))
	return a
}

// count is how many arrows there are.
func (a arrows) count() int {
	n := 0
	for _, to := range a.to {
		n += len(to)
	}
	return n
}

// back is how many arrows run back up when the files are in the best order that is found: a
// file above those that it uses. Without a cycle between files it is 0.
//
// The fewest possible is a minimum feedback arc set, which takes too long to find. This is
// a heuristic, so the count may be above the minimum, and the same code has the same count:
//
//  1. The order of Eades, Lin and Smyth: files that use nothing are taken from the bottom,
//     files that nothing uses from the top. When only cycles are left, the file that uses
//     the most more than it is used by is taken as the next from the top.
//  2. Each file is moved to where it is contradicted least, until no move helps.
func (a arrows) back() int { return len(a.backward()) }

// backward are the arrows that back counts, each from a file and to another.
func (a arrows) backward() [][2]string {
	return a.contradicting(a.improve(a.ordered()))
}

// contradicting are the arrows from a file to one above it.
func (a arrows) contradicting(order []string) [][2]string {
	at := make(map[string]int, len(order))
	for i, f := range order {
		at[f] = i
	}
	var out [][2]string
	for from, all := range a.to {
		for to := range all {
			if at[to] < at[from] {
				out = append(out, [2]string{from, to})
			}
		}
	}
	slices.SortFunc(out, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	return out
}

// ordered is the first step of back.
func (a arrows) ordered() []string {
	var top, bottom []string
	left := slices.Clone(a.files)
	for len(left) > 0 {
		i := a.next(left)
		f := left[i]
		uses, used := a.degrees(f, left)
		left = slices.Delete(left, i, i+1)
		if uses == 0 && used > 0 {
			bottom = append(bottom, f)
		} else {
			top = append(top, f)
		}
	}
	slices.Reverse(bottom)
	return append(top, bottom...)
}

// next is the index of the file that is taken next.
func (a arrows) next(left []string) int {
	best, most := 0, -len(left)
	for i, f := range left {
		uses, used := a.degrees(f, left)
		if uses == 0 || used == 0 {
			return i
		}
		if uses-used > most {
			best, most = i, uses-used
		}
	}
	return best
}

// degrees counts the files that f uses, and those that use it, among some.
func (a arrows) degrees(f string, among []string) (uses, used int) {
	for _, other := range among {
		if a.to[f][other] {
			uses++
		}
		if a.to[other][f] {
			used++
		}
	}
	return uses, used
}

// improve is the second step of back. Every move lowers the count, so it ends.
func (a arrows) improve(order []string) []string {
	for moved := true; moved; {
		moved = false
		for _, f := range a.files {
			from := slices.Index(order, f)
			if to := a.bestPlace(order, from); to != from {
				order = slices.Insert(slices.Delete(order, from, from+1), to, f)
				moved = true
			}
		}
	}
	return order
}

// bestPlace is the index at which the file at an index is contradicted least. That is where
// it is unless another place is better.
func (a arrows) bestPlace(order []string, from int) int {
	f, best, least := order[from], from, 0
	step := func(delta int, end int) {
		gain := 0
		for i := from + delta; i != end; i += delta {
			// Passing a file downward contradicts the arrow to it, and straightens the one from it.
			if a.to[f][order[i]] {
				gain += delta
			}
			if a.to[order[i]][f] {
				gain -= delta
			}
			if gain < least {
				best, least = i, gain
			}
		}
	}
	step(1, len(order))
	step(-1, -1)
	return best
}
