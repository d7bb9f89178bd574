// Package sample is what the tests of the command run: tests that say what they run on, and end as the environment wants.
package sample

import (
	"fmt"
	"os"
	"testing"

	"github.com/muster-dev/muster/internal/component"
)

func wanted(what string) bool { return os.Getenv("SUITES_SAMPLE") == what }

func TestOnTwo(t *testing.T) {
	component.Using(t, "first thing", "1.0")
	for _, name := range []string{"one", "two", "three"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch {
			case name == "two":
				component.Using(t, `second "thing"`, "v2")
			case name == "three" && wanted("skip"):
				t.Skip("there is no third thing")
			case name == "three" && wanted("fail"):
				t.Error("the third thing is broken")
			}
		})
	}
}

func TestOnNothing(*testing.T) {
	if wanted("noise") { // what looks like the beginning of a test, as the package testing marks it
		fmt.Print("\x16=== RUN   TestNobody\n")
	}
}

func TestThatPanics(t *testing.T) {
	component.Using(t, "first thing", "1.0")
	if wanted("panic") {
		panic("the first thing exploded")
	}
	if wanted("parent") {
		t.Run("sub", func(*testing.T) {})
		t.Error("the sum of it is wrong")
	}
}
