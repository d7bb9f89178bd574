package spc_test

import (
	"fmt"

	"github.com/muster-dev/muster/defender/spc"
)

func Example() {
	baseline, err := spc.PhaseI{Estimator: spc.MovingRange}.Estimate([]float64{
		49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1})
	if err != nil {
		fmt.Println(err)
		return
	}
	var runs spc.Runs
	for _, x := range []float64{51, 52, 58} {
		fmt.Printf("%g %v\n", x, runs.Next(baseline.Z(x), spc.Nelson).Names())
	}
	// Output:
	// 51 []
	// 52 []
	// 58 [nelson-1]
}
