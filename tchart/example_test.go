package tchart_test

import (
	"fmt"
	"math"

	"github.com/muster-dev/muster/tchart"
)

func Example() {
	trace := &tchart.Trace{
		Tool: "tool001", Chamber: "chamber1", Context: "lot7-wafer12", Recipe: "etch",
		SVIDs:  []string{"Pressure", "RF Power"},
		Time:   []float64{0, 1.02, 2.04},
		Step:   []int32{4, 4, 5},
		Values: [][]float64{{1227, 1229, 1221}, {131.768, math.NaN(), 133.768}},
	}
	blob, err := tchart.Encode(trace)
	if err != nil {
		panic(err)
	}
	back, err := tchart.Decode(blob)
	if err != nil {
		panic(err)
	}
	fmt.Println(back.Context, back.Time, back.Step)
	for i, name := range back.SVIDs {
		fmt.Println(name, back.Values[i])
	}
	// Output:
	// lot7-wafer12 [0 1.02 2.04] [4 4 5]
	// Pressure [1227 1229 1221]
	// RF Power [131.768 NaN 133.768]
}
