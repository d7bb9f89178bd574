// Package attribute holds the control charts of counts and of times between
// events, for the stream of alarms: violations a wafer (u-chart, Laney's u' where
// the counts are overdispersed), time between alarmed wafers (t-chart) and wafers
// between alarmed wafers (g-chart), per chamber, tool or rule.
//
// Which way is bad depends on the event. Of alarms, a low time between them is a
// deterioration and a high one an improvement; of violations a wafer it is the
// other way round.
//
// Sources, cited where they are used:
//
//   - Montgomery, D.C.: Introduction to Statistical Quality Control, 7th edition,
//     Wiley 2013, chapter 7.
//   - Laney, D.B.: Improved control charts for attributes, Quality Engineering 14
//     (2002), 531-537.
//   - Nelson, L.S.: A control chart for parts-per-million nonconforming items,
//     Journal of Quality Technology 26 (1994), 239-240.
//   - Benneyan, J.C.: Number-between g-type statistical quality control charts for
//     monitoring adverse events, Health Care Management Science 4 (2001), 305-318.
package attribute
