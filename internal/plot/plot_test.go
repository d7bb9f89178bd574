package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// elements returns the elements of a drawing by name, as often as they are in it.
func elements(t *testing.T, svg string) map[string]int {
	t.Helper()
	n := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			n[e.Name.Local]++
		}
	}
}

func TestChart(t *testing.T) {
	c := &Chart{Title: "a & b", X: "run", Width: 620, Height: 220}
	c.Line("signal", []float64{1, 2, 3, 4, 5}, []float64{1, 2, math.NaN(), 4, 5})
	c.Level("limit", 10)
	c.Dot("dot", 2, 2, 2, "x < y")
	c.Dot("dot", 2, 3, math.NaN(), "nowhere")
	svg := c.SVG()

	n := elements(t, svg)
	if n["path"] != 1 || n["circle"] != 1 {
		t.Errorf("%d paths and %d circles, want one of each", n["path"], n["circle"])
	}
	if breaks := strings.Count(svg, "M"); breaks != 2 {
		t.Errorf("the line consists of %d pieces, want 2", breaks)
	}
	// The level is part of the range: 10 is below the title, 1 above the foot.
	for _, want := range []string{">10<", "a &amp; b", "x &lt; y", ">run<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %s in %s", want, svg)
		}
	}
}

func TestChart_Empty(t *testing.T) {
	c := &Chart{Width: 620, Height: 220}
	c.IncludeX(1, 9)
	c.Line("signal", []float64{1}, []float64{math.NaN()})
	if !c.Empty() {
		t.Error("a chart without a finite value isn't empty")
	}
	if svg := c.SVG(); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("it can't be shown: %s", svg)
	}

	c.Line("signal", []float64{3}, []float64{5})
	if c.Empty() {
		t.Error("a chart of one value is empty")
	}
	if svg := c.SVG(); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("it can't be shown: %s", svg)
	}
}

func TestFile(t *testing.T) {
	above := &Chart{Title: "above", Width: 600, Height: 200, CountY: true}
	above.Area("needed", []float64{0, 1}, []float64{2, 2})
	above.Legend("needed", "needed at least")
	below := &Chart{Width: 600, Height: 100, CountY: true}
	svg := File(".needed { fill: gray; }", above, below)

	if n := elements(t, svg); n["svg"] != 1 || n["g"] != 2 || n["style"] != 1 {
		t.Errorf("elements %v, want one svg of two groups with one style", n)
	}
	for _, want := range []string{`viewBox="0 0 600 317"`, "translate(0 217)", ">needed at least<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %s in %s", want, svg)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to float64
		n, least float64
		want     []float64
	}{
		{"round steps", 0.3, 9.7, 5, 0, []float64{2, 4, 6, 8}},
		{"zero is exact", -0.35, 0.35, 7, 0, []float64{-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3}},
		{"whole numbers", 0, 2.1, 5, 1, []float64{0, 1, 2}},
		{"no range", 1, 1, 5, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ticks(span{lo: c.from, hi: c.to}, c.n, c.least)
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
			if !slices.EqualFunc(got, c.want, near) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestLogTicks(t *testing.T) {
	values := func(lo, hi float64) (list []float64) {
		for _, t := range logTicks(span{lo: lo, hi: hi}) {
			list = append(list, math.Round(t.value))
		}
		return list
	}
	if got := values(0, 1.5); !slices.Equal(got, []float64{1, 2, 5, 10, 20}) {
		t.Errorf("over one and a half decades %v", got)
	}
	if got := values(0, 3); !slices.Equal(got, []float64{1, 10, 100, 1000}) {
		t.Errorf("over three decades %v", got)
	}
}

func TestBars(t *testing.T) {
	svg := Bars("by <sensor>", []string{"a", "b"}, []float64{0.6, -0.2})
	if n := elements(t, svg); n["rect"] != 2 {
		t.Errorf("%d bars, want 2", n["rect"])
	}
	for _, want := range []string{`class="bar low"`, "+60 %", "-20 %", "by &lt;sensor&gt;"} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %s in %s", want, svg)
		}
	}
	if svg := Bars("none", []string{"a"}, []float64{0}); svg != "" {
		t.Errorf("without a share: %s", svg)
	}
}
