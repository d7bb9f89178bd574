package main

import (
	"bytes"
	"encoding/json"
	"strings"
)

// verdict is what became of a mutant.
type verdict string

const (
	caught   verdict = "caught"    // the named test fails
	survived verdict = "survived"  // it passes
	late     verdict = "timed out" // it does not end
	broken   verdict = "broken"    // the patch does not apply, the code does not compile, or the test does not run
)

// outcome is a run of the go command's tests.
type outcome struct {
	of     map[string]string // by test: "pass", "fail" or "skip"
	output map[string]string // by test
	broken string            // why nothing ran; "" if something did
	late   bool              // the time was up
}

// readOutcome reads the output of "go test -json".
func readOutcome(data []byte) outcome {
	o := outcome{of: make(map[string]string), output: make(map[string]string)}
	var build strings.Builder
	failed := false
	for line := range bytes.Lines(data) {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(line, &e) != nil {
			continue // what is not an event says why there is none, and is on the standard error, too
		}
		switch e.Action {
		case "build-output":
			build.WriteString(e.Output)
		case "build-fail":
			failed = true
		case "output":
			o.late = o.late || strings.HasPrefix(e.Output, "panic: test timed out after")
			o.output[e.Test] += e.Output
		case "pass", "fail", "skip":
			failed = failed || e.FailedBuild != ""
			if e.Test != "" {
				o.of[e.Test] = e.Action
			}
		}
	}
	if failed {
		o.broken = "it does not compile:\n" + build.String()
	}
	return o
}

// verdict returns what a run says of a mutant, and why.
func (o outcome) verdict(m mutant) (verdict, string) {
	switch of := o.of[m.reported()]; {
	case o.broken != "":
		return broken, o.broken
	case o.late:
		return late, "the test did not end: name one that fails"
	case of == "fail":
		return caught, o.output[m.reported()]
	case of == "pass":
		return survived, "the test passes: extend it, or name one that fails"
	default:
		return broken, "the test did not run, or was skipped: correct its name"
	}
}
