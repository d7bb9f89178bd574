package uchart

const blockLen = 128

// times are what the moments of all SVIDs share: those of the rows, in blocks of up to blockLen
// within a run. They are computed once for each trace.
type times struct {
	half   []float64 // half[i] is half the interval before row i; half[0] isn't used
	off    []float64 // from the mean of the row's block
	blocks []timeBlock
}

// timeBlock has the moments of a block's times.
type timeBlock struct {
	mean, squares float64 // the mean, and the sum of squares about it
	rest          float64 // sum of distances from the mean, which rounding leaves
}

func (t *times) reset() { t.half, t.off, t.blocks = append(t.half[:0], 0), t.off[:0], t.blocks[:0] }

// of returns those of a run.
func (t *times) of(r run) times {
	return times{half: t.half[r.from:r.to], off: t.off[r.from:r.to], blocks: t.blocks[r.block:]}
}

// add appends the blocks of a run's times, which are relative to the trace's first.
func (t *times) add(run []float64) {
	for len(run) > 0 {
		block := run[:min(blockLen, len(run))]
		run = run[len(block):]
		n, sum := float64(len(block)), 0.0
		for _, at := range block {
			sum += at
		}

		b := timeBlock{mean: sum / n}
		for _, at := range block {
			d := at - b.mean
			b.squares += float64(d * d)
			b.rest += d
			t.off = append(t.off, d)
		}
		b.squares -= float64(b.rest*b.rest) / n
		t.blocks = append(t.blocks, b)
	}
}
