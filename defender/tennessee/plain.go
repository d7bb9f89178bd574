package main

import (
	"fmt"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/muster-dev/muster/defender/pca"
	"github.com/muster-dev/muster/defender/uchart"
)

// plain is a principal component analysis as textbooks have it: trained once, T² by F's
// distribution (Tracy, Young and Mason 1992), Q by the moments of its own training (Box 1954).
type plain struct {
	model           *pca.Model
	t2Limit, qLimit float64
}

// each is the share of false alarms that T² and Q have each: together as many as a defender.
const each = 0.005

func train(rows [][]float64) (plain, error) {
	m, err := pca.Train(rows, pca.Config{})
	if err != nil {
		return plain{}, fmt.Errorf("training the plain model: %w", err)
	}
	var qs []float64
	for _, row := range rows {
		s, err := m.Score(row)
		if err != nil {
			return plain{}, err
		}
		qs = append(qs, s.Q)
	}
	n, k := float64(len(rows)), float64(m.Components())
	f := distuv.F{D1: k, D2: n - k}
	return plain{m, k * (n*n - 1) / (n * (n - k)) * f.Quantile(1-each), momentsOf(qs).Limit(each)}, nil
}

func momentsOf(xs []float64) pca.Moments {
	var m pca.Moments
	for _, x := range xs {
		m.Mean += x / float64(len(xs))
	}
	for _, x := range xs {
		m.Variance += float64((x-m.Mean)*(x-m.Mean)) / float64(len(xs)-1)
	}
	return m
}

// out reports whether T² or Q is over its limit.
func (p *plain) out(row []float64) bool {
	s, err := p.model.Score(row)
	return err != nil || s.T2 > p.t2Limit || s.Q > p.qLimit
}

// featuresOf are means and standard deviations of all sensors in a run.
func featuresOf(r run) []float64 {
	var row []float64
	for svid := range r.chart.SVIDs {
		for _, s := range []uchart.Statistic{uchart.Mean, uchart.StdDev} {
			x, _ := r.chart.Value(svid, 0, s)
			row = append(row, x)
		}
	}
	return row
}

// samplesOf are the samples of a run, each with all sensors.
func samplesOf(r run) [][]float64 {
	rows := make([][]float64, len(r.trace.Time))
	for i := range rows {
		rows[i] = make([]float64, len(r.trace.Values))
		for svid, values := range r.trace.Values {
			rows[i][svid] = values[i]
		}
	}
	return rows
}

// plains are the plain models of a course: of runs and of samples.
type plains struct{ runs, samples plain }

func trainBoth(c *course) (plains, error) {
	var features, samples [][]float64
	for _, r := range c.undisturbed[:learning] {
		features = append(features, featuresOf(r))
		samples = append(samples, samplesOf(r)...)
	}
	var p plains
	var err error
	if p.runs, err = train(features); err != nil {
		return p, err
	}
	p.samples, err = train(samples)
	return p, err
}

// enough is how many samples over the limits make a run's alarm: of 50 independent ones with
// 1 % false alarms each, as many are over in 1.4 % of runs.
const enough = 3

// over is how many of a run's samples are over the limits.
func (p *plains) over(r run) int {
	n := 0
	for _, row := range samplesOf(r) {
		if p.samples.out(row) {
			n++
		}
	}
	return n
}
