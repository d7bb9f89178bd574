package pca

import (
	"math"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
)

// reduction is how a symmetric matrix was made tridiagonal by Householder's reflections (Golub
// and Van Loan, "Matrix Computations", 8.3.1): the matrix is Q T Q', with Q the product of the
// reflections in their order. It is memory for one matrix after the other.
//
// LAPACK's dsytd2 goes through the matrix twice for each reflection, to update it and to
// multiply the next reflector by it, and reads reflectors by column. Here one pass does both,
// and reflectors are rows.
type reduction struct {
	n          int
	rest       []float64 // what is left of the matrix
	reflectors []float64 // row i is reflector i from element i+1 on, which is 1
	tau        []float64 // reflection i is the identity less tau[i] times reflector times its transpose
	w, next    []float64
}

// reduce sets d and e to the diagonal of T and the one beside it. It reads the lower triangle.
func (r *reduction) reduce(a blas64.Symmetric, d, e []float64) {
	n := a.N
	r.n = n
	rest, reflectors, tau := room(&r.rest, n*n), room(&r.reflectors, n*n), room(&r.tau, n)
	copy(rest, a.Data)
	w, next := room(&r.w, n), room(&r.next, n)
	clear(w)
	v := w // nothing is to be taken off before the first reflection
	for i := range n - 1 {
		// Column i, less what the reflection before takes off.
		d[i] = rest[i*n+i] - float64(2*v[i]*w[i])
		u := reflectors[i*n : (i+1)*n]
		for j := i + 1; j < n; j++ {
			u[j] = rest[j*n+i] - (float64(v[j]*w[i]) + float64(w[j]*v[i]))
		}
		e[i], tau[i] = reflector(u[i+1:])

		r.pass(i+1, u, v, w, next)
		floats.Scale(tau[i], next[i+1:])
		floats.AddScaled(next[i+1:], -tau[i]/2*floats.Dot(next[i+1:], u[i+1:]), u[i+1:])
		v, w, next = u, next, w
	}
	d[n-1] = rest[n*n-1] - float64(2*v[n-1]*w[n-1])
}

// pass takes vw'+wv' off the matrix from row and column from on, and sets y to what is left
// times u.
func (r *reduction) pass(from int, u, v, w, y []float64) {
	n := r.n
	clear(y)
	for i := from; i < n; i++ {
		row := r.rest[i*n+from : i*n+i]
		us, vs, ws, ys := u[from:i], v[from:i], w[from:i], y[from:i]
		us, vs, ws, ys = us[:len(row)], vs[:len(row)], ws[:len(row)], ys[:len(row)]
		ui, vi, wi, sum := u[i], v[i], w[i], 0.0
		for j, x := range row {
			x -= float64(vi*ws[j]) + float64(wi*vs[j])
			row[j] = x
			sum += float64(x * us[j])
			ys[j] += float64(x * ui)
		}
		x := r.rest[i*n+i] - float64(2*vi*wi)
		r.rest[i*n+i] = x
		y[i] += sum + float64(x*ui)
	}
}

// reflector makes x the vector of the reflection that leaves of x its first element alone, and
// returns what that is then and tau.
func reflector(x []float64) (first, tau float64) {
	first = x[0]
	below := floats.Dot(x[1:], x[1:])
	x[0] = 1
	if below == 0 {
		return first, 0
	}
	alpha := first
	first = -math.Copysign(math.Sqrt(float64(alpha*alpha)+below), alpha)
	floats.Scale(1/(alpha-first), x[1:])
	return first, (first - alpha) / first
}

// back takes a vector of T to that of the matrix: x becomes Qx.
func (r *reduction) back(x []float64) {
	for i := r.n - 2; i >= 0; i-- {
		r.reflect(i, x)
	}
}

// forth takes a vector of the matrix to that of T: x becomes Q'x.
func (r *reduction) forth(x []float64) {
	for i := range r.n - 1 {
		r.reflect(i, x)
	}
}

func (r *reduction) reflect(i int, x []float64) {
	u, x := r.reflectors[i*r.n+i+1:(i+1)*r.n], x[i+1:]
	floats.AddScaled(x, -r.tau[i]*floats.Dot(u, x), u)
}
