package trace_test

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/defender/trace"
)

func ExampleReader() {
	file := `set,wafer,name,fault,Time,Step Number,Pressure,RF Pwr
calibration,1,l2901.txm,,11.9,4,1227,26
calibration,1,l2901.txm,,12.9,4,1229,27
test,1,l2915.txm,TCP +50,10.2,4,1221,26
`
	r, err := trace.NewReader(strings.NewReader(file), "etch.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	for w, err := range r.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(w.Trace.Context, w.Experiment, w.Normal(), w.Fault, w.Trace.Values)
	}
	// Output:
	// l2901.txm 29 true  [[1227 1229] [26 27]]
	// l2915.txm 29 false TCP +50 [[1221] [26]]
}

// A file with several faults reports them together.
func ExampleReader_problems() {
	file := `set,wafer,name,fault,Time,Step Number,Pressure
calibration,1,l2901.txm,,soon,4,1227
calibration,1,l2901.txm,,12.9,four,1229
`
	r, err := trace.NewReader(strings.NewReader(file), "etch.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = r.Read()
	fmt.Println(err)
	// Output:
	// etch.csv:2: column "Time": "soon" is not a time: write seconds, as 12.5, or a timestamp, as 2026-03-01T12:00:00Z
	// etch.csv:3: column "Step Number": "four" is not a recipe step: write an integer
}
