package classify_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

func levels(pairs ...any) []uchart.Level {
	var list []uchart.Level
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, uchart.Level{SVID: pairs[i].(string), Sigmas: pairs[i+1].(float64)})
	}
	return list
}

var cases = []classify.Case{
	{Run: "a1", Fault: "pressure high", Opposite: "pressure low", Signature: levels("Valve", -80.0, "Load", 20.0, "Pressure", 7.0)},
	{Run: "a2", Fault: "chuck leak", Signature: levels("Helium", 12.0, "Load", -2.0)},
}

func TestARunIsNamedByTheMostSimilarCase(t *testing.T) {
	t.Parallel()
	library := classify.New(cases)
	for _, test := range []struct {
		name      string
		signature []uchart.Level
		want      string
		nearest   string
	}{
		{"smaller, but of the same sensors", levels("Pressure", 2.0, "Load", 5.0, "Valve", -30.0), "pressure high", "a1"},
		{"in the other direction, which has a name", levels("Valve", 50.0, "Load", -10.0, "Pressure", -4.0), "pressure low", "a1"},
		{"in the other direction, which has none", levels("Helium", -9.0), "chuck leak, reversed", "a2"},
		{"of other sensors", levels("Tuner", 30.0, "Load", 1.0), "unknown", "a1"},
		{"of sensors that no case has", levels("Tuner", 30.0), "unknown", "a2"},
	} {
		m := library.Classify(test.signature)
		if m == nil || m.String() != test.want {
			t.Errorf("%s: the run is %v, want %s", test.name, m, test.want)
			continue
		}
		if m.Unknown() != (test.want == "unknown") || m.Nearest[0].Run != test.nearest {
			t.Errorf("%s: the match is %+v, want run %s first", test.name, m, test.nearest)
		}
		if !(m.Confidence > 0 && m.Confidence < 1) {
			t.Errorf("%s: the confidence is %v", test.name, m.Confidence)
		}
	}
}

func TestConfidenceFallsWithDoubt(t *testing.T) {
	t.Parallel()
	library := classify.New(cases)
	same := library.Classify(cases[0].Signature)
	far := library.Classify(levels("Valve", -80.0, "Load", 20.0, "Pressure", 7.0, "Tuner", 25.0))
	if !(same.Confidence > far.Confidence) || far.Unknown() {
		t.Errorf("confidence is %.2f of the run itself, %.2f of one with another sensor off", same.Confidence, far.Confidence)
	}
	twin := append(slices.Clone(cases), classify.Case{Run: "a3", Fault: "valve stuck", Signature: cases[0].Signature})
	if m := classify.New(twin).Classify(cases[0].Signature); m.Confidence > 0.5 {
		t.Errorf("two faults with one signature have confidence %.2f, want half at most", m.Confidence)
	}
	again := append(slices.Clone(cases), classify.Case{Run: "a3", Fault: "pressure high", Signature: cases[0].Signature})
	if m := classify.New(again).Classify(cases[0].Signature); m.Confidence != same.Confidence {
		t.Errorf("a second label of a fault changes its confidence from %.3f to %.3f", same.Confidence, m.Confidence)
	}
}

func TestTheOrderOfCasesAndLevelsDoesNotMatter(t *testing.T) {
	t.Parallel()
	signature := levels("Load", 5.0, "Valve", -30.0, "Helium", 3.0)
	want := classify.New(cases).Classify(signature)
	reversed, turned := slices.Clone(cases), slices.Clone(signature)
	slices.Reverse(reversed)
	slices.Reverse(turned)
	if got := classify.New(reversed).Classify(turned); !reflect.DeepEqual(got, want) {
		t.Errorf("the match is %+v in another order, else %+v", got, want)
	}
}

func TestALibraryCanLeaveARunOut(t *testing.T) {
	t.Parallel()
	library := classify.New(cases)
	if m := library.Without("a1").Classify(cases[0].Signature); !m.Unknown() || m.Nearest[0].Run != "a2" {
		t.Errorf("without the run itself the match is %+v", m)
	}
	if library.Size() != 2 || library.Without("a1").Size() != 1 {
		t.Errorf("the libraries have %d and %d cases, want 2 and 1", library.Size(), library.Without("a1").Size())
	}
}

func TestWithoutAnythingToCompareThereIsNoMatch(t *testing.T) {
	t.Parallel()
	if m := classify.New(nil).Classify(cases[0].Signature); m != nil {
		t.Errorf("an empty library says %+v", m)
	}
	if m := classify.New(cases).Classify(nil); m != nil {
		t.Errorf("a run without a signature is %+v", m)
	}
	broken := classify.New([]classify.Case{{Run: "x", Fault: "y", Signature: levels("a", math.NaN())}})
	if broken.Size() != 0 {
		t.Errorf("a case without finite levels counts")
	}
}
