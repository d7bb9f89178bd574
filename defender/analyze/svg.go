package analyze

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is an SVG drawing with axes. Colours are classes, which the report's style
// sheet sets for light and dark.
type plot struct {
	b                      strings.Builder
	width, height          float64
	left, right, top, foot float64
	x0, x1, y0, y1         float64 // the data's range
	title                  string
}

func newPlot(title string, width, height float64) *plot {
	return &plot{title: title, width: width, height: height, left: 58, right: 12, top: 26, foot: 24,
		x0: math.Inf(1), x1: math.Inf(-1), y0: math.Inf(1), y1: math.Inf(-1)}
}

// reach widens the range so that a point is inside.
func (p *plot) reach(x, y float64) {
	if math.IsNaN(x+y) || math.IsInf(x+y, 0) {
		return
	}
	p.x0, p.x1 = min(p.x0, x), max(p.x1, x)
	p.y0, p.y1 = min(p.y0, y), max(p.y1, y)
}

// settle leaves a margin and makes an empty range usable.
func (p *plot) settle() {
	if p.x0 > p.x1 {
		p.x0, p.x1, p.y0, p.y1 = 0, 1, 0, 1
	}
	if p.x0 == p.x1 {
		p.x0, p.x1 = p.x0-1, p.x1+1
	}
	margin := (p.y1 - p.y0) * 0.06
	if margin == 0 {
		margin = max(math.Abs(p.y0)*0.05, 1e-9)
	}
	p.y0, p.y1 = p.y0-margin, p.y1+margin
}

func (p *plot) px(x float64) float64 {
	return p.left + (x-p.x0)/(p.x1-p.x0)*(p.width-p.left-p.right)
}

func (p *plot) py(y float64) float64 {
	return p.height - p.foot - (y-p.y0)/(p.y1-p.y0)*(p.height-p.top-p.foot)
}

// axes draws the frame and ticks.
func (p *plot) axes(xLabel string) {
	for _, y := range ticksOf(p.y0, p.y1, 5) {
		p.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, p.left, p.width-p.right, p.py(y), p.py(y))
		p.add(`<text class="tick" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, p.left-5, p.py(y)+3.5, label(y))
	}
	for _, x := range ticksOf(p.x0, p.x1, 8) {
		p.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`, p.px(x), p.height-p.foot+14, label(x))
	}
	p.add(`<text class="tick" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, p.width-p.right, p.height-1, html.EscapeString(xLabel))
	p.add(`<text class="title" x="%.1f" y="15">%s</text>`, 2.0, html.EscapeString(p.title))
}

func (p *plot) add(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// line draws a polyline; it breaks at values that aren't finite.
func (p *plot) line(class string, xs, ys []float64) {
	var d strings.Builder
	pen := 'M'
	for i := range xs {
		if math.IsNaN(xs[i]+ys[i]) || math.IsInf(xs[i]+ys[i], 0) {
			pen = 'M'
			continue
		}
		fmt.Fprintf(&d, "%c%.1f %.1f", pen, p.px(xs[i]), p.py(ys[i]))
		pen = 'L'
	}
	if d.Len() > 0 {
		p.add(`<path class="%s" d="%s"/>`, class, d.String())
	}
}

// level draws a horizontal line.
func (p *plot) level(class string, y float64) {
	if y < p.y0 || y > p.y1 {
		return
	}
	p.add(`<line class="%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, class, p.left, p.width-p.right, p.py(y), p.py(y))
}

// dot draws a point that tells about itself when it is pointed at.
func (p *plot) dot(class string, x, y float64, about string) {
	if math.IsNaN(x+y) || math.IsInf(x+y, 0) {
		return
	}
	radius := 2.4
	if class != "dot" {
		radius = 4
	}
	p.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"><title>%s</title></circle>`, class, p.px(x), p.py(y), radius, html.EscapeString(about))
}

func (p *plot) String() string {
	return fmt.Sprintf(`<svg role="img" aria-label="%s" viewBox="0 0 %.0f %.0f" xmlns="http://www.w3.org/2000/svg">`+"\n%s</svg>\n",
		html.EscapeString(p.title), p.width, p.height, p.b.String())
}

// ticksOf returns about n round numbers in a range.
func ticksOf(low, high float64, n int) []float64 {
	raw := (high - low) / float64(n)
	if !(raw > 0) || math.IsInf(raw, 0) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*step >= raw {
			step *= f
			break
		}
	}
	var list []float64
	for v := math.Ceil(low/step) * step; v <= high && len(list) <= 2*n; v += step {
		if math.Abs(v) < step/1e6 {
			v = 0
		}
		list = append(list, v)
	}
	return list
}

func label(v float64) string { return fmt.Sprintf("%.6g", v) }

// bars draws named shares, the positive to the right.
func bars(title string, names []string, shares []float64) string {
	const row, nameWidth, width = 18.0, 210.0, 480.0
	most := 0.0
	for _, s := range shares {
		most = max(most, math.Abs(s))
	}
	if most == 0 {
		return ""
	}
	height := 26 + row*float64(len(shares))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg role="img" aria-label="%s" viewBox="0 0 %.0f %.0f" xmlns="http://www.w3.org/2000/svg">`, html.EscapeString(title), width, height)
	fmt.Fprintf(&b, `<text class="title" x="2" y="15">%s</text>`, html.EscapeString(title))
	for i, s := range shares {
		y := 26 + row*float64(i)
		w := math.Abs(s) / most * (width - nameWidth - 60)
		class := "bar"
		if s < 0 {
			class = "bar low"
		}
		fmt.Fprintf(&b, `<text class="tick" text-anchor="end" x="%.0f" y="%.1f">%s</text>`, nameWidth-6, y+11, html.EscapeString(names[i]))
		fmt.Fprintf(&b, `<rect class="%s" x="%.0f" y="%.1f" width="%.1f" height="11"/>`, class, nameWidth, y+2, w)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f">%+.0f %%</text>`, nameWidth+w+5, y+11, 100*s)
	}
	return b.String() + "</svg>\n"
}
