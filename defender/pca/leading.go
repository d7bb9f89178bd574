package pca

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack"
	lapackgonum "gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"
)

// spectrum is the eigenvalue problem of a symmetric matrix of which few eigenvectors are
// wanted. The matrix is made tridiagonal; the eigenvalues of that are found without vectors
// (the root-free QL method), and each vector that is wanted by inverse iteration (Wilkinson
// 1965). To find all vectors, as LAPACK's dsyev does, takes twice as long where a third of them
// is wanted. It is memory for one problem after the other.
type spectrum struct {
	matrix  blas64.Symmetric
	to      reduction
	t       tridiagonal
	values  []float64
	scratch []float64  // copies of the off-diagonal, and room of LAPACK
	vectors []float64  // a row each
	all     *mat.Dense // all vectors by dsyev, ascending; nil unless they were needed
}

// Norms of matrices outside these bounds are left to dsyev, which scales them.
const (
	smallNorm = 1e-100
	largeNorm = 1e100
)

// room makes a slice that long, with whatever was left in it.
func room(s *[]float64, n int) []float64 {
	if cap(*s) < n {
		*s = make([]float64, n)
	}
	*s = (*s)[:n]
	return *s
}

// solve finds the eigenvalues of a matrix whose lower triangle is given, the largest first. The
// matrix is used up. It returns false if they are not found.
func (p *spectrum) solve(a blas64.Symmetric) ([]float64, bool) {
	n := a.N
	p.matrix, p.all = a, nil
	norm := 0.0
	for i := range n {
		for _, x := range a.Data[i*a.Stride : i*a.Stride+i+1] {
			norm = max(norm, math.Abs(x))
		}
	}
	if n < 3 || !(norm >= smallNorm && norm <= largeNorm) {
		return p.solveAll()
	}

	d, e := p.t.of(n)
	p.to.reduce(a, d, e)
	values, off := room(&p.values, n), room(&p.scratch, n-1)
	copy(values, d)
	copy(off, e)
	var l lapackgonum.Implementation
	if !l.Dsterf(n, values, off) {
		return p.solveAll()
	}
	slices.Reverse(values)
	return values, true
}

// solveAll finds eigenvalues and all eigenvectors.
func (p *spectrum) solveAll() ([]float64, bool) {
	a := p.matrix
	values := room(&p.values, a.N)
	var size [1]float64
	lapack64.Syev(lapack.EVCompute, a, values, size[:], -1)
	work := room(&p.scratch, int(size[0]))
	if !lapack64.Syev(lapack.EVCompute, a, values, work, len(work)) {
		return nil, false
	}
	slices.Reverse(values)
	p.all = mat.NewDense(a.N, a.N, a.Data)
	return values, true
}

// leading returns the eigenvectors of the k largest eigenvalues that solve found, one a row;
// false if they are not found.
func (p *spectrum) leading(k int) (mat.Matrix, bool) {
	n := p.matrix.N
	if p.all == nil && !p.iterate(k) {
		// Eigenvalues that are all but equal may need it.
		if _, ok := p.solveAll(); !ok {
			return nil, false
		}
	}
	if p.all != nil {
		rows := mat.NewDense(k, n, room(&p.vectors, k*n))
		for i := range k {
			rows.SetRow(i, mat.Col(nil, n-1-i, p.all))
		}
		return rows, true
	}

	for x := p.vectors; len(x) > 0; x = x[n:] {
		p.to.back(x[:n])
	}
	return mat.NewDense(k, n, p.vectors), true
}

// iterate finds the first k vectors of the tridiagonal matrix, and reports whether all are as
// exact as they can be.
func (p *spectrum) iterate(k int) bool {
	n := p.matrix.N
	vectors := room(&p.vectors, k*n)
	p.t.norm = max(floats.Norm(p.t.d, math.Inf(1)), floats.Norm(p.t.e, math.Inf(1)))
	for i := range k {
		x := vectors[i*n : (i+1)*n]
		if !p.t.vector(p.values[i], vectors[:i*n], x) {
			return false
		}
	}
	return true
}

// tridiagonal is a symmetric tridiagonal matrix, with the factors of it less a multiple of the
// identity.
type tridiagonal struct {
	d, e []float64 // its diagonal, and the one beside it
	norm float64

	// Row i of the upper factor is 1/inverse[i], u1[i], u2[i]. Row i+1 less multiplier[i] times that row
	// makes it, after both were swapped if swapped[i].
	inverse, u1, u2, multiplier []float64
	swapped                     []bool
}

// of returns the diagonals of a matrix of size n, to be filled.
func (t *tridiagonal) of(n int) (d, e []float64) {
	for _, s := range []*[]float64{&t.inverse, &t.u1, &t.u2, &t.multiplier} {
		room(s, n)
	}
	if cap(t.swapped) < n {
		t.swapped = make([]bool, n)
	}
	t.swapped = t.swapped[:n]
	return room(&t.d, n), room(&t.e, n-1)
}

// epsilon is the relative distance of neighbouring numbers.
const epsilon = 0x1p-52

// Of inverse iteration.
const (
	maxIterations = 5
	maxResidual   = 50 * epsilon // of a vector, for each row, relative to the matrix
)

// vector sets x to the eigenvector of a value, orthogonal to those found before, and reports
// whether that was reached. One step usually does; the second makes it exact.
func (t *tridiagonal) vector(value float64, before, x []float64) bool {
	n := len(x)
	t.factor(value)
	for i := range x {
		// Any vector that isn't orthogonal to the one to find: no pattern, and the same each time.
		x[i] = 1 + float64(i*7919%101)/101
	}
	for step := range maxIterations {
		if step > 0 {
			t.forward(x)
		}
		t.backward(x)
		scale := floats.Norm(x, math.Inf(1))
		if !(scale > 0 && scale <= math.MaxFloat64) {
			return false
		}
		floats.Scale(1/scale, x)
		for b := before; len(b) > 0; b = b[n:] {
			floats.AddScaled(x, -floats.Dot(b[:n], x), b[:n])
		}
		length := floats.Norm(x, 2)
		if !(length > 1e-3) { // hardly anything but those before: dsyev can tell them apart
			return false
		}
		floats.Scale(1/length, x)
		// The second step is for what the first leaves unless the start was a good one.
		most := float64(maxResidual)
		if step == 0 {
			most = epsilon
		}
		if t.residual(value, x) <= float64(n)*most*t.norm {
			return true
		}
	}
	return false
}

// factor factors the matrix less value times the identity, with pivots.
func (t *tridiagonal) factor(value float64) {
	n := len(t.d)
	least := epsilon * t.norm // instead of a pivot that is zero
	diagonal, beside := t.d[0]-value, t.e[0]
	for i := range n - 1 {
		below, next, after := t.e[i], t.d[i+1]-value, 0.0
		if i < n-2 {
			after = t.e[i+1]
		}
		if t.swapped[i] = math.Abs(below) > max(math.Abs(diagonal), least); t.swapped[i] {
			inverse := 1 / below
			m := diagonal * inverse
			t.inverse[i], t.u1[i], t.u2[i], t.multiplier[i] = inverse, next, after, m
			diagonal, beside = beside-float64(m*next), -float64(m*after)
			continue
		}
		if math.Abs(diagonal) < least {
			diagonal = math.Copysign(least, diagonal)
		}
		inverse := 1 / diagonal
		m := below * inverse
		t.inverse[i], t.u1[i], t.u2[i], t.multiplier[i] = inverse, beside, 0, m
		diagonal, beside = next-float64(m*beside), after
	}
	if math.Abs(diagonal) < least {
		diagonal = math.Copysign(least, diagonal)
	}
	t.inverse[n-1], t.u1[n-1], t.u2[n-1] = 1/diagonal, 0, 0
}

// forward does to x what factor did to the rows.
func (t *tridiagonal) forward(x []float64) {
	for i := range len(x) - 1 {
		if t.swapped[i] {
			x[i], x[i+1] = x[i+1], x[i]
		}
		x[i+1] -= float64(t.multiplier[i] * x[i])
	}
}

// backward solves the upper factor.
func (t *tridiagonal) backward(x []float64) {
	after, last := 0.0, 0.0
	for i := len(x) - 1; i >= 0; i-- {
		v := (x[i] - float64(t.u1[i]*after) - float64(t.u2[i]*last)) * t.inverse[i]
		x[i], after, last = v, v, after
	}
}

// residual is how far the matrix takes x from its multiple.
func (t *tridiagonal) residual(value float64, x []float64) float64 {
	n, worst := len(x), 0.0
	for i, v := range x {
		r := float64((t.d[i] - value) * v)
		if i > 0 {
			r += float64(t.e[i-1] * x[i-1])
		}
		if i < n-1 {
			r += float64(t.e[i] * x[i+1])
		}
		worst = max(worst, math.Abs(r))
	}
	return worst
}
