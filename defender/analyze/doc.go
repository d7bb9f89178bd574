// Package analyze runs the defender's pipeline offline on recorded traces: the
// same statistics, the same judgement, no broker and no store. It yields a list of
// runs with their verdicts and an HTML report that stands for itself, with trace
// overlays, control charts, and T² and Q with their contributions as inline SVG.
package analyze
