package pca

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// symmetric returns a matrix with these eigenvalues and random eigenvectors.
func symmetric(r *rand.Rand, values []float64) *mat.SymDense {
	n := len(values)
	random := mat.NewDense(n, n, nil)
	random.Apply(func(int, int, float64) float64 { return r.NormFloat64() }, random)
	var qr mat.QR
	qr.Factorize(random)
	var q, qd, m mat.Dense
	qr.QTo(&q)
	qd.Mul(&q, mat.NewDiagDense(n, values))
	m.Mul(&qd, q.T())
	s := mat.NewSymDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			s.SetSym(i, j, (m.At(i, j)+m.At(j, i))/2)
		}
	}
	return s
}

// lower returns what solve takes, with other numbers where it reads nothing.
func lower(s *mat.SymDense) blas64.Symmetric {
	n := s.SymmetricDim()
	a := blas64.Symmetric{Uplo: blas.Lower, N: n, Stride: n, Data: make([]float64, n*n)}
	for i := range n {
		for j := range n {
			a.Data[i*n+j] = math.NaN()
			if j <= i {
				a.Data[i*n+j] = s.At(i, j)
			}
		}
	}
	return a
}

// checkSpectrum compares the eigenvalues with those of gonum, and has the vectors be orthonormal
// eigenvectors of s.
func checkSpectrum(t *testing.T, p *spectrum, s *mat.SymDense, k int) {
	t.Helper()
	n := s.SymmetricDim()
	values, ok := p.solve(lower(s))
	if !ok {
		t.Fatal("no eigenvalues are found")
	}
	values = slices.Clone(values)
	vectors, ok := p.leading(k)
	if !ok {
		t.Fatal("no eigenvectors are found")
	}
	var all mat.EigenSym
	all.Factorize(s, false)
	want := all.Values(nil)
	slices.Reverse(want)
	norm := math.Max(math.Abs(want[0]), math.Abs(want[n-1]))
	tolerance := 1e-13 * float64(n) * norm
	for i := range n {
		if d := math.Abs(values[i] - want[i]); d > tolerance {
			t.Errorf("eigenvalue %d is %v, want %v", i, values[i], want[i])
		}
	}
	for i := range k {
		v := mat.NewVecDense(n, mat.Row(nil, i, vectors))
		var av mat.VecDense
		av.MulVec(s, v)
		av.AddScaledVec(&av, -values[i], v)
		if r := mat.Norm(&av, math.Inf(1)); !(r <= tolerance) {
			t.Errorf("vector %d: the matrix takes it %g from its multiple, more than %g", i, r, tolerance)
		}
		for j := range i + 1 {
			w, want := mat.NewVecDense(n, mat.Row(nil, j, vectors)), 0.0
			if i == j {
				want = 1
			}
			if d := math.Abs(mat.Dot(v, w) - want); !(d <= 1e-12) {
				t.Errorf("vectors %d and %d: their product is %g off", i, j, d)
			}
		}
	}
}

// TestSpectrum: the eigenvectors are exact and orthogonal for any spectrum, and scratch memory
// that a problem of another size left does no harm.
func TestSpectrum(t *testing.T) {
	t.Parallel()
	var p spectrum
	for _, n := range []int{1, 2, 3, 4, 7, 33, 45, 80} {
		for name, value := range map[string]func(i int) float64{
			"spread":     func(i int) float64 { return float64(n - i) },
			"decaying":   func(i int) float64 { return math.Pow(0.5, float64(i)) },
			"few":        func(i int) float64 { return float64(max(3-i, 0)) },
			"in pairs":   func(i int) float64 { return float64(n - i/2*2) },
			"near pairs": func(i int) float64 { return float64(n) - float64(i/2*2) - 1e-13*float64(i%2) },
			"equal":      func(int) float64 { return 2 },
			"tiny":       func(i int) float64 { return 1e-120 / float64(i+1) },
			"huge":       func(i int) float64 { return 1e120 / float64(i+1) },
			"negative":   func(i int) float64 { return -float64(i) },
			"dominated":  func(i int) float64 { return max(1e12*float64(1-i), 1+0.01*float64(n-i)) },
		} {
			for seed := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				values := make([]float64, n)
				for i := range values {
					values[i] = value(i)
				}
				t.Run(fmt.Sprintf("%s of %d", name, n), func(t *testing.T) { checkSpectrum(t, &p, symmetric(r, values), max(n/3, 1)) })
			}
		}
		diagonal := mat.NewSymDense(n, nil) // which is tridiagonal with nothing beside the diagonal
		for i := range n {
			diagonal.SetSym(i, i, float64(i%5))
		}
		t.Run(fmt.Sprintf("diagonal of %d", n), func(t *testing.T) { checkSpectrum(t, &p, diagonal, max(n/3, 1)) })
		t.Run(fmt.Sprintf("zero of %d", n), func(t *testing.T) { checkSpectrum(t, &p, mat.NewSymDense(n, nil), 1) })
	}
}

// TestSpectrum_iterates: what runs give is found without all eigenvectors.
func TestSpectrum_iterates(t *testing.T) {
	t.Parallel()
	var p spectrum
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{8, 19, 45, 50, 100} {
		x := mat.NewDense(n, 76, nil)
		x.Apply(func(_, j int, _ float64) float64 { return r.NormFloat64() + 3*float64(j%2)*r.Float64() }, x)
		s := mat.NewSymDense(n, nil)
		s.SymOuterK(1/float64(n), x)
		checkSpectrum(t, &p, s, n/3)
		if p.all != nil {
			t.Errorf("all vectors of %d runs are found", n)
		}
	}
}

// FuzzSpectrum: no matrix is solved wrongly.
func FuzzSpectrum(f *testing.F) {
	f.Add(uint8(5), uint8(2), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint8(3), uint8(1), []byte{0, 0, 0, 128, 0, 0})
	f.Add(uint8(12), uint8(4), []byte{9, 9, 9, 9, 1})
	f.Fuzz(func(t *testing.T, size, wanted uint8, data []byte) {
		n := int(size)%20 + 1
		s := mat.NewSymDense(n, nil)
		for i := range n {
			for j := range i + 1 {
				if at := i*(i+1)/2 + j; len(data) > 0 {
					s.SetSym(i, j, float64(int8(data[at%len(data)])))
				}
			}
		}
		var p spectrum
		checkSpectrum(t, &p, s, int(wanted)%n+1)
	})
}
