// Package spc holds the control charts of variables: what is measured, one number
// a process run. It has individuals and moving range charts, EWMA and tabular
// CUSUM, the Western Electric and Nelson run rules, robust estimates, and Phase I
// with iterative exclusion. Everything is a pure function or a small step machine
// without clock, I/O or randomness; attribute charts (counts and times between
// events) are in package attribute, multivariate ones in package pca.
//
// Sources, cited where they are used:
//
//   - Montgomery, D.C.: Introduction to Statistical Quality Control, 7th edition,
//     Wiley 2013.
//   - NIST/SEMATECH e-Handbook of Statistical Methods, chapter 6,
//     https://www.itl.nist.gov/div898/handbook/.
//   - Western Electric Co.: Statistical Quality Control Handbook, 1956.
//   - Nelson, L.S.: The Shewhart control chart - tests for special causes,
//     Journal of Quality Technology 16 (1984), 237-239.
//   - Wheeler, D.J., Chambers, D.S.: Understanding Statistical Process Control,
//     3rd edition, SPC Press 2010.
//   - Qiu, P.: Introduction to Statistical Process Control, CRC Press 2014.
//   - Lucas, J.M., Saccucci, M.S.: Exponentially weighted moving average control
//     schemes, Technometrics 32 (1990), 1-12.
//   - Champ, C.W., Woodall, W.H.: Exact results for Shewhart control charts with
//     supplementary runs rules, Technometrics 29 (1987), 393-399.
package spc
