package pca

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// CrossValidate divides the runs into the given number of folds, each of every folds-th run,
// trains a model without each, and returns how it scores the runs left out. With
// as many folds as runs, or 0 folds, it leaves out one at a time.
func CrossValidate(runs [][]float64, c Config, folds int) (Reference, error) {
	if folds <= 0 || folds > len(runs) {
		folds = len(runs)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	v := &s.validation
	r := Reference{T2s: make([]float64, len(runs)), Qs: make([]float64, len(runs))}
	// A part that can't be trained is told as such, with what is wrong with its runs.
	quick := c.withDefaults(len(runs)).check(runs) == nil
	if quick {
		v.begin(runs)
	}
	for fold := range folds {
		v.divide(runs, fold, folds)
		if quick && s.scoreLeftOut(c) {
			for k, i := 0, fold; i < len(runs); k, i = k+1, i+folds {
				r.T2s[i], r.Qs[i] = v.t2s[k], v.qs[k]
			}
			continue
		}
		m, err := s.train(v.rest, c)
		if err != nil {
			return Reference{}, fmt.Errorf("cross-validating without part %d of %d: %w", fold+1, folds, err)
		}
		x := make([]float64, m.p)
		for i := fold; i < len(runs); i += folds {
			s, err := m.score(runs[i], x)
			if err != nil {
				return Reference{}, fmt.Errorf("cross-validating run %d: %w", i, err)
			}
			r.T2s[i], r.Qs[i] = s.T2, s.Q
		}
	}
	r.T2, r.Q = momentsOf(r.T2s), momentsOf(r.Qs)
	return r, nil
}

// validation is memory for the parts of a cross-validation.
type validation struct {
	rest, out [][]float64 // runs to train on, and left out

	// Of each variable, over all runs and over the rest.
	meanOfAll, squaresOfAll []float64
	mean, squares, inverse  []float64 // inverse of what a variable is divided by, 0 if it is left out

	products []float64 // of runs left out with the others
	t2s, qs  []float64 // of the runs left out
}

func (v *validation) begin(runs [][]float64) {
	p := len(runs[0])
	meanAndSquares(runs, room(&v.meanOfAll, p), room(&v.squaresOfAll, p))
}

func (v *validation) divide(runs [][]float64, fold, folds int) {
	v.rest, v.out = v.rest[:0], v.out[:0]
	for i, run := range runs {
		if i%folds == fold {
			v.out = append(v.out, run)
		} else {
			v.rest = append(v.rest, run)
		}
	}
}

// Bounds below which scoreLeftOut would lose digits.
const (
	leastEigenvalue = 1e-6 // of a component's, relative to the largest
	leastResidual   = 1e-6 // Q, relative to the squared length of the run
)

// scoreLeftOut scores the runs left out by a model of the rest, without making it, and returns
// false where that would lose digits or there is no model. Of a model that serves for few runs
// its loadings are most of the work. Instead these runs are taken to where the matrix of the
// rest is tridiagonal: their scores are products with the eigenvectors there, and Q is the
// squared length that the scores leave.
func (s *scratch) scoreLeftOut(c Config) bool {
	v := &s.validation
	n, out := len(v.rest), len(v.out)
	if n < 3 || c.Components > n-2 {
		return false
	}
	c = c.withDefaults(n)
	v.center(c)
	p := len(v.mean)
	rows := room(&s.runs, (n+out)*p)
	for i, run := range v.rest {
		v.standardize(rows[i*p:(i+1)*p], run)
	}
	left := rows[n*p:]
	for i, run := range v.out {
		v.standardize(left[i*p:(i+1)*p], run)
	}

	x := blas64.General{Rows: n, Cols: p, Stride: p, Data: rows[:n*p]}
	gram, transposed := s.gramOf(x)
	values, ok := s.spectrum.solve(gram)
	if !ok || s.spectrum.all != nil {
		return false
	}
	values, k := c.keep(values, n)
	if k == 0 || values[k-1] < leastEigenvalue*values[0] || !s.spectrum.iterate(k) {
		return false
	}

	// A loading is X'a over the root of (n-1)λ, with a an eigenvector of XX'.
	v.t2s, v.qs = v.t2s[:0], v.qs[:0]
	for i := range out {
		run := left[i*p : (i+1)*p]
		whole := floats.Dot(run, run)
		at, unit := run, 1.0
		if transposed {
			at, unit = room(&v.products, n), float64(n-1)
			for j := range at {
				at[j] = floats.Dot(x.Data[j*p:(j+1)*p], run)
			}
		}
		s.spectrum.to.forth(at)
		t2, fitted := 0.0, 0.0
		for a, value := range values[:k] {
			t := floats.Dot(s.spectrum.vectors[a*len(at):(a+1)*len(at)], at)
			square := float64(t * t)
			if transposed {
				square /= unit * value
			}
			t2 += square / value
			fitted += square
		}
		q := whole - fitted
		if !(q > leastResidual*whole) {
			return false
		}
		v.t2s, v.qs = append(v.t2s, t2), append(v.qs, q)
	}
	return true
}

// center sets what the rest of the runs is standardized by. Means and squares are those of all
// runs less the part of the runs left out, or computed where that is most of them.
func (v *validation) center(c Config) {
	const most = 1 - 1e-3
	n, p := float64(len(v.rest)), len(v.meanOfAll)
	mean, squares := room(&v.mean, p), room(&v.squares, p)
	clear(mean)
	clear(squares)
	for _, run := range v.out {
		for j, x := range run {
			d := x - v.meanOfAll[j]
			mean[j] += d
			squares[j] += float64(d * d)
		}
	}
	inverse := room(&v.inverse, p)
	for j, all := range v.squaresOfAll {
		moved := -mean[j] / n
		less := squares[j] + float64(n*float64(moved*moved))
		mean[j], squares[j] = v.meanOfAll[j]+moved, all-less
		if !(less < most*all) {
			mean[j], squares[j] = v.exactly(j)
		}
		inverse[j] = 0
		if scale := c.scaleOf(j, mean[j], squares[j], len(v.rest)); scale > 0 {
			inverse[j] = 1 / scale
		}
	}
}

// exactly returns mean and squares of one variable.
func (v *validation) exactly(j int) (mean, squares float64) {
	first := v.rest[0][j]
	for _, run := range v.rest {
		mean += run[j] - first
	}
	mean = first + mean/float64(len(v.rest))
	for _, run := range v.rest {
		d := run[j] - mean
		squares += float64(d * d)
	}
	return mean, squares
}

func (v *validation) standardize(dst, run []float64) {
	mean, inverse := v.mean[:len(run)], v.inverse[:len(run)]
	for j, x := range run {
		dst[j] = float64((x - mean[j]) * inverse[j])
	}
}
