package pca

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"
)

// Config says how a model is made. The zero value of a field stands for its
// default.
type Config struct {
	// Components is how many principal components the model keeps; 0 keeps as
	// many as explain Variance.
	Components int
	// Variance is the share of the variance to explain when Components is 0, 0 to
	// 1; default 0.8.
	Variance float64
	// MaxComponents bounds the number that Variance chooses; default a third of
	// the runs.
	MaxComponents int
	// Floor is the smallest standard deviation that each variable is scaled by,
	// in its unit; nil for none. It keeps a sensor that hardly moved in training
	// from making much of its last digit.
	Floor []float64
	// Covariance centers the variables and doesn't scale them; for variables of
	// one unit.
	Covariance bool
}

// Model is a principal component model of normal runs. It is immutable and safe
// for concurrent use.
type Model struct {
	n, p, k  int
	mean     []float64
	scale    []float64  // 0 for a variable that never moved, which is left out
	loadings *mat.Dense // p x k
	eigen    []float64  // all eigenvalues that aren't 0, descending
}

// ErrUnfit says that there is nothing to make a model of.
var ErrUnfit = errors.New("no model")

// Train makes a model of runs, one a row, all of one length and finite. It needs
// three at least, and one variable at least that varies. The work is that of an
// eigenvalue problem of the smaller of runs and variables, with as many vectors as components.
func Train(runs [][]float64, c Config) (*Model, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	return s.train(runs, c)
}

// scratch is memory that the training of one model after the other uses. No model keeps any
// of it.
type scratch struct {
	runs, gram, column, vector []float64
	spectrum                   spectrum
	validation                 validation
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// train is [Train].
func (s *scratch) train(runs [][]float64, c Config) (*Model, error) {
	n := len(runs)
	c = c.withDefaults(n)
	if err := c.check(runs); err != nil {
		return nil, err
	}
	p := len(runs[0])
	m := &Model{n: n, p: p, mean: make([]float64, p), scale: make([]float64, p)}
	m.center(runs, c)
	x := mat.NewDense(n, p, room(&s.runs, n*p))
	for i, run := range runs {
		m.standardize(x.RawRowView(i), run)
	}
	if err := m.decompose(x, c, s); err != nil {
		return nil, err
	}
	return m, nil
}

// withDefaults is for that many runs.
func (c Config) withDefaults(runs int) Config {
	if c.Variance == 0 {
		c.Variance = 0.8
	}
	if c.MaxComponents == 0 {
		c.MaxComponents = max(runs/3, 1)
	}
	return c
}

// check reports why there is no model of the runs.
func (c Config) check(runs [][]float64) error {
	if len(runs) < 3 {
		return fmt.Errorf("%w of %d runs: at least 3 are needed", ErrUnfit, len(runs))
	}
	p := len(runs[0])
	if p == 0 {
		return fmt.Errorf("%w of %d runs without variables", ErrUnfit, len(runs))
	}
	if c.Components < 0 || c.Components > len(runs)-2 || !(c.Variance > 0 && c.Variance <= 1) || c.Floor != nil && len(c.Floor) != p {
		return fmt.Errorf("%w with %d components, %g of the variance and %d floors for %d runs of %d variables: "+
			"give 0 to runs-2 components, a share above 0 and at most 1, and a floor for each variable or none", ErrUnfit, c.Components, c.Variance, len(c.Floor), len(runs), p)
	}
	for i, run := range runs {
		if len(run) != p {
			return fmt.Errorf("%w: run %d has %d variables, run 0 has %d", ErrUnfit, i, len(run), p)
		}
		for j, v := range run {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: variable %d of run %d is %v", ErrUnfit, j, i, v)
			}
		}
	}
	return nil
}

// center sets mean and scale.
func (m *Model) center(runs [][]float64, c Config) {
	squares := make([]float64, m.p)
	meanAndSquares(runs, m.mean, squares)
	for j := range m.p {
		m.scale[j] = c.scaleOf(j, m.mean[j], squares[j], m.n)
	}
}

// meanAndSquares sets the mean of each variable, and its sum of squares about that.
func meanAndSquares(runs [][]float64, mean, squares []float64) {
	first := runs[0]
	clear(mean)
	for _, run := range runs { // row by row, which is how they lie in memory
		for j, v := range run {
			mean[j] += v - first[j]
		}
	}
	for j, v := range first {
		mean[j] = v + mean[j]/float64(len(runs))
	}
	clear(squares)
	for _, run := range runs {
		for j, v := range run {
			d := v - mean[j]
			squares[j] += float64(d * d)
		}
	}
}

// scaleOf returns what a variable is divided by, given its mean and its sum of squares about
// that; 0 leaves it out.
func (c Config) scaleOf(variable int, mean, squares float64, runs int) float64 {
	sd := math.Sqrt(squares / float64(runs-1))
	if c.Floor != nil {
		sd = max(sd, c.Floor[variable])
	}
	switch {
	// What is left of a constant by rounding is no variation.
	case sd <= 1e-12*math.Abs(mean) || math.IsInf(sd, 0) || math.IsNaN(sd):
		return 0
	case c.Covariance:
		return 1
	}
	return sd
}

func (m *Model) standardize(dst, run []float64) {
	for j, v := range run {
		if dst[j] = 0; m.scale[j] > 0 {
			dst[j] = (v - m.mean[j]) / m.scale[j]
		}
	}
}

// gram sets the lower triangle of the smaller of X'X and XX', over runs less one, and reports
// whether it is XX'.
func (s *scratch) gramOf(x blas64.General) (gram blas64.Symmetric, transposed bool) {
	n, p := x.Rows, x.Cols
	size, form := p, blas.Trans
	if transposed = p > n; transposed {
		size, form = n, blas.NoTrans
	}
	gram = blas64.Symmetric{Uplo: blas.Lower, N: size, Stride: size, Data: room(&s.gram, size*size)}
	blas64.Syrk(form, 1/float64(n-1), x, 0, gram)
	return gram, transposed
}

// keep returns the eigenvalues that aren't 0, and how many components are kept.
func (c Config) keep(values []float64, runs int) (nonzero []float64, k int) {
	total := 0.0
	for i, v := range values {
		if i == runs-1 || v <= 1e-10*values[0] || !(v > 0) {
			values = values[:i]
			break
		}
		total += v
	}
	if c.Components > 0 {
		return values, min(c.Components, len(values))
	}
	explained := 0.0
	for k < min(len(values), c.MaxComponents) && (k == 0 || explained < c.Variance*total) {
		explained += values[k]
		k++
	}
	return values, k
}

// decompose finds eigenvalues and loadings.
func (m *Model) decompose(x *mat.Dense, c Config, s *scratch) error {
	gram, transposed := s.gramOf(x.RawMatrix())
	unfound := fmt.Errorf("%w: the eigenvalues of %d runs of %d variables were not found", ErrUnfit, m.n, m.p)
	values, ok := s.spectrum.solve(gram)
	if !ok {
		return unfound
	}
	if values, m.k = c.keep(values, m.n); len(values) == 0 {
		return fmt.Errorf("%w: no variable varies", ErrUnfit)
	}
	m.eigen = slices.Clone(values)
	vectors, ok := s.spectrum.leading(m.k)
	if !ok {
		return unfound
	}
	m.loadings = mat.NewDense(m.p, m.k, nil)
	column := mat.NewVecDense(m.p, room(&s.column, m.p))
	v := mat.NewVecDense(gram.N, room(&s.vector, gram.N))
	for a := range m.k {
		mat.Row(v.RawVector().Data, a, vectors)
		if transposed {
			column.MulVec(x.T(), v)
			column.ScaleVec(1/mat.Norm(column, 2), column)
		} else {
			column.CopyVec(v)
		}
		orient(column)
		m.loadings.SetCol(a, column.RawVector().Data)
	}
	return nil
}

// orient makes the largest loading positive: eigenvectors have no sign of their
// own, and equal training is to give equal models.
func orient(v *mat.VecDense) {
	most := 0.0
	for _, x := range v.RawVector().Data {
		if math.Abs(x) > math.Abs(most)*(1+1e-9) {
			most = x
		}
	}
	if most < 0 {
		v.ScaleVec(-1, v)
	}
}

// Components returns how many components the model keeps.
func (m *Model) Components() int { return m.k }

// Score is what a model says of a run.
type Score struct {
	T2, Q  float64
	Scores []float64 // of the components
	// T2By and QBy are the contributions of the variables. Those of T² sum up to
	// T² and may be negative; those of Q are the squared residuals with the sign
	// of the residual, whose absolute values sum up to Q.
	T2By, QBy []float64
}

// Score judges a run: as many variables as in training, all finite.
func (m *Model) Score(run []float64) (Score, error) {
	x := make([]float64, m.p)
	s, err := m.score(run, x)
	if err != nil {
		return Score{}, err
	}
	s.T2By, s.QBy = make([]float64, m.p), make([]float64, m.p)
	byScore := make([]float64, m.k)
	for a, t := range s.Scores {
		byScore[a] = t / m.eigen[a]
	}
	for j, v := range x {
		fit := 0.0
		for a, load := range m.loadings.RawRowView(j) {
			fit += float64(s.Scores[a] * load)
			s.T2By[j] += float64(byScore[a] * load * v)
		}
		r := v - fit
		s.QBy[j] = math.Copysign(r*r, r)
	}
	return s, nil
}

// score is Score without the variables' contributions. It leaves in x, which is as
// long as the run, the standardized run.
func (m *Model) score(run, x []float64) (Score, error) {
	if len(run) != m.p {
		return Score{}, fmt.Errorf("scoring a run of %d variables: the model has %d", len(run), m.p)
	}
	m.standardize(x, run)
	s := Score{Scores: make([]float64, m.k)}
	for j, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Score{}, fmt.Errorf("scoring a run: variable %d is %v", j, run[j])
		}
		for a, load := range m.loadings.RawRowView(j) {
			s.Scores[a] += float64(v * load)
		}
	}
	for j, v := range x {
		fit := 0.0
		for a, load := range m.loadings.RawRowView(j) {
			fit += float64(s.Scores[a] * load)
		}
		s.Q += float64((v - fit) * (v - fit))
	}
	for a, t := range s.Scores {
		s.T2 += float64(t * t / m.eigen[a])
	}
	return s, nil
}
