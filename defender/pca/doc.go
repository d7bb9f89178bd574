// Package pca monitors many statistics of a process run at once: a principal
// component model of normal runs, Hotelling's T² for how far a run lies out within
// the model, and Q, the squared prediction error (SPE), for how far it lies off
// it, each with the contributions of the variables.
//
// Runs of a recipe with several steps are unfolded batch-wise (Nomikos and
// MacGregor 1995): one row a run, one column for each statistic of each sensor in
// each step; so the model holds the correlations between steps, too.
//
// Sources, cited where they are used:
//
//   - Hotelling, H.: Multivariate quality control, in Techniques of Statistical
//     Analysis, McGraw-Hill 1947.
//   - Tracy, N.D., Young, J.C., Mason, R.L.: Multivariate control charts for
//     individual observations, Journal of Quality Technology 24 (1992), 88-95.
//   - Nomikos, P., MacGregor, J.F.: Multivariate SPC charts for monitoring batch
//     processes, Technometrics 37 (1995), 41-59.
//   - Box, G.E.P.: Some theorems on quadratic forms applied in the study of
//     analysis of variance problems I, Annals of Mathematical Statistics 25 (1954).
//   - Wise, B.M., Gallagher, N.B., Butler, S.W., White, D.D., Barna, G.G.: A
//     comparison of principal component analysis, multiway principal component
//     analysis, trilinear decomposition and parallel factor analysis for fault
//     detection in a semiconductor etch process, Journal of Chemometrics 13 (1999).
package pca
