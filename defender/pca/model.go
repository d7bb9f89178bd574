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
	"gonum.org/v1/gonum/stat/distuv"
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
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// train is [Train].
func (s *scratch) train(runs [][]float64, c Config) (*Model, error) {
	if c.Variance == 0 {
		c.Variance = 0.8
	}
	n := len(runs)
	if c.MaxComponents == 0 {
		c.MaxComponents = max(n/3, 1)
	}
	if n < 3 {
		return nil, fmt.Errorf("%w of %d runs: at least 3 are needed", ErrUnfit, n)
	}
	p := len(runs[0])
	if p == 0 {
		return nil, fmt.Errorf("%w of %d runs without variables", ErrUnfit, n)
	}
	if c.Components < 0 || c.Components > n-2 || !(c.Variance > 0 && c.Variance <= 1) || c.Floor != nil && len(c.Floor) != p {
		return nil, fmt.Errorf("%w with %d components, %g of the variance and %d floors for %d runs of %d variables: "+
			"give 0 to runs-2 components, a share above 0 and at most 1, and a floor for each variable or none", ErrUnfit, c.Components, c.Variance, len(c.Floor), n, p)
	}
	for i, run := range runs {
		if len(run) != p {
			return nil, fmt.Errorf("%w: run %d has %d variables, run 0 has %d", ErrUnfit, i, len(run), p)
		}
		for j, v := range run {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("%w: variable %d of run %d is %v", ErrUnfit, j, i, v)
			}
		}
	}
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

// center sets mean and scale.
func (m *Model) center(runs [][]float64, c Config) {
	first := runs[0]
	for _, run := range runs { // row by row, which is how they lie in memory
		for j, v := range run {
			m.mean[j] += v - first[j]
		}
	}
	for j, v := range first {
		m.mean[j] = v + m.mean[j]/float64(m.n)
	}
	squares := make([]float64, m.p)
	for _, run := range runs {
		for j, v := range run {
			d := v - m.mean[j]
			squares[j] += float64(d * d)
		}
	}
	for j := range m.p {
		sd := math.Sqrt(squares[j] / float64(m.n-1))
		if c.Floor != nil {
			sd = max(sd, c.Floor[j])
		}
		switch {
		// What is left of a constant by rounding is no variation.
		case sd <= 1e-12*math.Abs(m.mean[j]) || math.IsInf(sd, 0) || math.IsNaN(sd):
			m.scale[j] = 0
		case c.Covariance:
			m.scale[j] = 1
		default:
			m.scale[j] = sd
		}
	}
}

func (m *Model) standardize(dst, run []float64) {
	for j, v := range run {
		if dst[j] = 0; m.scale[j] > 0 {
			dst[j] = (v - m.mean[j]) / m.scale[j]
		}
	}
}

// decompose finds eigenvalues and loadings, by way of the smaller of X'X and XX'.
func (m *Model) decompose(x *mat.Dense, c Config, s *scratch) error {
	transposed := m.p > m.n
	size := min(m.n, m.p)
	gram := blas64.Symmetric{Uplo: blas.Lower, N: size, Stride: size, Data: room(&s.gram, size*size)}
	form := blas.Trans
	if transposed {
		form = blas.NoTrans
	}
	blas64.Syrk(form, 1/float64(m.n-1), x.RawMatrix(), 0, gram)
	unfound := fmt.Errorf("%w: the eigenvalues of %d runs of %d variables were not found", ErrUnfit, m.n, m.p)
	values, ok := s.spectrum.solve(gram)
	if !ok {
		return unfound
	}
	total := 0.0
	for i, v := range values {
		if i == m.n-1 || v <= 1e-10*values[0] || !(v > 0) {
			values = values[:i]
			break
		}
		total += v
	}
	if len(values) == 0 {
		return fmt.Errorf("%w: no variable varies", ErrUnfit)
	}
	m.eigen = slices.Clone(values)
	if m.k = min(c.Components, len(values)); c.Components == 0 {
		explained := 0.0
		for m.k < min(len(values), c.MaxComponents) && (m.k == 0 || explained < c.Variance*total) {
			explained += values[m.k]
			m.k++
		}
	}
	vectors, ok := s.spectrum.leading(m.k)
	if !ok {
		return unfound
	}
	m.loadings = mat.NewDense(m.p, m.k, nil)
	column := mat.NewVecDense(m.p, room(&s.column, m.p))
	v := mat.NewVecDense(size, room(&s.vector, size))
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

// Reference is how T² and Q of normal runs are distributed that a model was not
// trained on, by cross-validation. With fewer runs than variables
// the model fits its own runs far better than any other, so limits from the
// training residuals raise false alarms; these don't.
type Reference struct {
	T2, Q   Moments
	T2s, Qs []float64 // of each run, by the model of all the others
}

// Moments are those of a statistic over runs.
type Moments struct{ Mean, Variance float64 }

// Limit returns what a run exceeds with probability alpha, if the statistic is
// distributed like a multiple of chi-square (Box 1954, as Nomikos and MacGregor
// 1995 set limits of Q).
func (m Moments) Limit(alpha float64) float64 { return boxLimit(alpha, m.Mean, m.Variance) }

// T2Limit returns the T² that a run exceeds with probability alpha by a model of that many
// components: F's distribution, which T² of a run that the model wasn't trained on has
// (Tracy, Young and Mason 1992), on the scale that cross-validation found. Components are
// chosen by the variance in training, which makes their T² larger than theory has it.
func (r Reference) T2Limit(components int, alpha float64) float64 {
	n, k := float64(len(r.T2s)), float64(components)
	if n-k <= 2 || !(r.T2.Mean > 0) {
		return r.T2.Limit(alpha)
	}
	f := distuv.F{D1: k, D2: n - k}
	return max(r.T2.Limit(alpha), r.T2.Mean*f.Quantile(1-alpha)/f.Mean())
}

// CrossValidate divides the runs into the given number of folds, each of every folds-th run,
// trains a model without each, and returns how it scores the runs left out. With
// as many folds as runs, or 0 folds, it leaves out one at a time.
func CrossValidate(runs [][]float64, c Config, folds int) (Reference, error) {
	if folds <= 0 || folds > len(runs) {
		folds = len(runs)
	}
	r := Reference{T2s: make([]float64, len(runs)), Qs: make([]float64, len(runs))}
	rest := make([][]float64, 0, len(runs))
	var x []float64
	for fold := range folds {
		rest = rest[:0]
		for i, run := range runs {
			if i%folds != fold {
				rest = append(rest, run)
			}
		}
		m, err := Train(rest, c)
		if err != nil {
			return Reference{}, fmt.Errorf("cross-validating without part %d of %d: %w", fold+1, folds, err)
		}
		if x == nil {
			x = make([]float64, m.p)
		}
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

func momentsOf(xs []float64) Moments {
	var m Moments
	for _, x := range xs {
		m.Mean += x / float64(len(xs))
	}
	for _, x := range xs {
		m.Variance += float64((x - m.Mean) * (x - m.Mean) / float64(len(xs)-1))
	}
	return m
}
