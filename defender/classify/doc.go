// Package classify names the fault of a run by the labelled runs that it is most like.
//
// Runs are compared by the signatures of their verdicts ([uchart.Level]): how far each
// sensor's level is from the chamber's own earlier runs. So runs of chambers and
// experiments with other usual levels can be compared, which raw values can't. Levels count
// by their logarithms: else the one sensor that is eighty sigmas off decides alone.
//
// A fault whose sensors are off in the opposite direction is the same fault reversed, such as
// too little flow instead of too much.
package classify
