package pca

import "slices"

// Runs returns how many runs the model was trained on, Eigenvalues all eigenvalues
// that aren't 0, descending.
func (m *Model) Runs() int              { return m.n }
func (m *Model) Eigenvalues() []float64 { return slices.Clone(m.eigen) }

// Explained returns the share of the variance that the components explain.
func (m *Model) Explained() float64 {
	kept, total := 0.0, 0.0
	for i, v := range m.eigen {
		if total += v; i < m.k {
			kept += v
		}
	}
	return kept / total
}
