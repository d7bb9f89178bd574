package uchart_test

import (
	"fmt"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

func Example() {
	// A sensor that is read once a second in one recipe step.
	chart := func(values ...float64) *uchart.Chart {
		t := &tchart.Trace{SVIDs: []string{"pressure"}, Values: [][]float64{values}}
		for i := range values {
			t.Time = append(t.Time, float64(i))
			t.Step = append(t.Step, 4)
		}
		c, err := uchart.Compute(t)
		if err != nil {
			panic(err)
		}
		return c
	}

	var history []uchart.Point
	for i := range 12 {
		noise := float64(i % 3)
		history = append(history, uchart.Point{Context: fmt.Sprint("wafer-", i), Chart: chart(90+noise, 93, 91-noise, 92)})
	}
	for _, values := range [][]float64{{91, 93, 91, 92}, {131, 133, 131, 132}} {
		verdict := uchart.Judge(history, chart(values...), uchart.Policy{})
		fmt.Println(verdict.State, verdict.Violated)
		for _, v := range verdict.Violations[:min(1, len(verdict.Violations))] {
			fmt.Printf("%s of %s in step %d is %g\n", v.Statistic, v.SVID, v.Step, v.Value)
		}
	}
	// Output:
	// normal 0
	// alarm 1
	// mean of pressure in step 4 is 131.75
}
