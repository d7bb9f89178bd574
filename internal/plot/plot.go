// Package plot draws charts as SVG. Colours and strokes are left to a style sheet:
// every mark has a class, and the parts that the chart itself draws have the classes
// "title", "tick" and "grid".
package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Chart has two axes, and as their range all that is drawn.
type Chart struct {
	Title         string
	X, Y          string  // labels of the axes
	Width, Height float64 // without the legend, which is as high as it has rows
	LogY          bool    // powers of ten are equally far apart
	CountY        bool    // a number of things: the axis begins at 0 and marks whole numbers

	x, y   span
	marks  []func(*frame)
	legend []entry
}

// entry explains a class in the legend.
type entry struct{ class, name string }

// Margins around the plotted area.
const (
	left, right, foot = 58.0, 12.0, 28.0
	titleHeight       = 26.0
	legendRow         = 17.0
)

// Include makes a point part of the range without drawing it.
func (c *Chart) Include(x, y float64) {
	if y = c.height(y); !finite(x, y) {
		return
	}
	c.x.include(x)
	c.y.include(y)
}

// IncludeX makes the range reach from one x to another.
func (c *Chart) IncludeX(from, to float64) {
	c.x.include(from)
	c.x.include(to)
}

// Empty reports whether nothing is drawn.
func (c *Chart) Empty() bool { return c.y.empty() }

// Line draws a line through points. It breaks at those that aren't finite.
func (c *Chart) Line(class string, xs, ys []float64) {
	for i := range xs {
		c.Include(xs[i], ys[i])
	}
	c.marks = append(c.marks, func(f *frame) {
		var d strings.Builder
		pen := 'M'
		for i := range xs {
			y := c.height(ys[i])
			if !finite(xs[i], y) {
				pen = 'M'
				continue
			}
			fmt.Fprintf(&d, "%c%.1f %.1f", pen, f.x(xs[i]), f.y(y))
			pen = 'L'
		}
		if d.Len() > 0 {
			f.add(`<path class="%s" d="%s"/>`, class, d.String())
		}
	})
}

// Area fills what is between finite points and the foot of the chart.
func (c *Chart) Area(class string, xs, ys []float64) {
	if len(xs) == 0 {
		return
	}
	for i := range xs {
		c.Include(xs[i], ys[i])
	}
	c.marks = append(c.marks, func(f *frame) {
		var d strings.Builder
		fmt.Fprintf(&d, "M%.1f %.1f", f.x(xs[0]), f.bottom)
		for i := range xs {
			fmt.Fprintf(&d, "L%.1f %.1f", f.x(xs[i]), f.y(c.height(ys[i])))
		}
		fmt.Fprintf(&d, "L%.1f %.1fZ", f.x(xs[len(xs)-1]), f.bottom)
		f.add(`<path class="%s" d="%s"/>`, class, d.String())
	})
}

// Level draws a horizontal line from end to end.
func (c *Chart) Level(class string, y float64) {
	if y = c.height(y); !finite(y) {
		return
	}
	c.y.include(y)
	c.marks = append(c.marks, func(f *frame) {
		f.add(`<line class="%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, class, left, f.right, f.y(y), f.y(y))
	})
}

// Dot draws a point that shows a text when it is pointed at.
func (c *Chart) Dot(class string, radius, x, y float64, about string) {
	c.Include(x, y)
	if y = c.height(y); !finite(x, y) {
		return
	}
	c.marks = append(c.marks, func(f *frame) {
		f.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"><title>%s</title></circle>`, class, f.x(x), f.y(y), radius, html.EscapeString(about))
	})
}

// Legend explains a class in a row of its own above the plotted area.
func (c *Chart) Legend(class, name string) {
	c.legend = append(c.legend, entry{class, name})
}

// SVG returns the chart as an element for a page of HTML that has a style sheet.
func (c *Chart) SVG() string { return svg(c.Title, "", c.Width, c.totalHeight(), c.draw()) }

// File returns charts, one below the other, as a file with a style sheet of its own.
func File(style string, charts ...*Chart) string {
	var b strings.Builder
	width, height := 0.0, 0.0
	for _, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(0 %.0f)">`+"\n%s</g>\n", height, c.draw())
		width, height = max(width, c.Width), height+c.totalHeight()
	}
	return svg(charts[0].Title, "<style>"+style+"</style>\n", width, height, b.String())
}

func svg(title, style string, width, height float64, content string) string {
	return fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %.0f %.0f" xmlns="http://www.w3.org/2000/svg">`+"\n%s%s</svg>\n",
		html.EscapeString(title), width, height, style, content)
}

func (c *Chart) totalHeight() float64 { return c.Height + legendRow*float64(len(c.legend)) }

// height is where a value lies on the y axis: its logarithm on a logarithmic one.
func (c *Chart) height(y float64) float64 {
	if c.LogY {
		return math.Log10(y)
	}
	return y
}

func finite(vs ...float64) bool {
	for _, v := range vs {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}
