package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// span is the range of an axis. The zero span is empty.
type span struct {
	lo, hi float64
	some   bool
}

func (s *span) include(v float64) {
	if !s.some {
		*s = span{v, v, true}
		return
	}
	s.lo, s.hi = min(s.lo, v), max(s.hi, v)
}

func (s *span) empty() bool { return !s.some }

// frame is the plotted area of a chart whose range is known.
type frame struct {
	drawing            strings.Builder
	xs, ys             span
	right, top, bottom float64 // edges; the left one is the same in every chart
}

func (f *frame) add(format string, args ...any) { fmt.Fprintf(&f.drawing, format+"\n", args...) }

func (f *frame) x(v float64) float64 {
	return left + (v-f.xs.lo)/(f.xs.hi-f.xs.lo)*(f.right-left)
}

func (f *frame) y(v float64) float64 {
	return f.bottom - (v-f.ys.lo)/(f.ys.hi-f.ys.lo)*(f.bottom-f.top)
}

// draw draws the axes, then the marks on top of them.
func (c *Chart) draw() string {
	f := &frame{xs: c.xRange(), ys: c.yRange()}
	f.right, f.bottom = c.Width-right, c.totalHeight()-foot
	f.top = titleHeight + legendRow*float64(len(c.legend))

	f.add(`<text class="title" x="2" y="15">%s</text>`, html.EscapeString(c.Title))
	for i, e := range c.legend {
		y := titleHeight + legendRow*float64(i)
		f.add(`<path class="%s" d="M%.1f %.1fh22v8h-22z"/>`, e.class, left, y-3)
		f.add(`<text class="tick" x="%.1f" y="%.1f">%s</text>`, left+29, y+5, html.EscapeString(e.name))
	}
	c.axes(f)
	for _, mark := range c.marks {
		mark(f)
	}
	return f.drawing.String()
}

// xRange is never empty, so that a chart of one point can be drawn, too.
func (c *Chart) xRange() span {
	s := c.x
	if s.lo == s.hi {
		s.lo, s.hi = s.lo-1, s.hi+1
	}
	return s
}

// yRange has a margin above and below what is drawn.
func (c *Chart) yRange() span {
	s := c.y
	if c.CountY {
		return span{lo: 0, hi: max(s.hi, 1) * 1.06}
	}
	if s.empty() {
		return span{lo: 0, hi: 1}
	}
	margin := (s.hi - s.lo) * 0.06
	if margin == 0 {
		margin = max(math.Abs(s.lo)*0.05, 1e-9)
	}
	return span{lo: s.lo - margin, hi: s.hi + margin}
}

func (c *Chart) axes(f *frame) {
	for _, t := range c.yTicks(f.ys) {
		f.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, f.right, f.y(t.at), f.y(t.at))
		f.add(`<text class="tick" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, left-5, f.y(t.at)+3.5, label(t.value))
	}
	for _, x := range ticks(f.xs, math.Round(c.Width/80), 0) {
		f.add(`<text class="tick" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`, f.x(x), f.bottom+14, label(x))
	}
	f.add(`<text class="tick" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, f.right, f.bottom+foot-1, html.EscapeString(c.X))
	if c.Y != "" {
		middle := (f.top + f.bottom) / 2
		f.add(`<text class="tick" text-anchor="middle" transform="translate(12 %.1f) rotate(-90)">%s</text>`, middle, html.EscapeString(c.Y))
	}
}

// tick is a marked value and where it lies on the axis.
type tick struct{ at, value float64 }

func (c *Chart) yTicks(s span) []tick {
	if c.LogY {
		return logTicks(s)
	}
	least := 0.0
	if c.CountY {
		least = 1
	}
	var list []tick
	for _, v := range ticks(s, 5, least) {
		list = append(list, tick{v, v})
	}
	return list
}

// logTicks marks the powers of ten, and 2 and 5 times these where there is room.
func logTicks(s span) []tick {
	factors := []float64{1, 2, 5}
	if s.hi-s.lo > 2.5 {
		factors = factors[:1]
	}
	var list []tick
	for e := math.Floor(s.lo); e <= s.hi; e++ {
		for _, f := range factors {
			if at := e + math.Log10(f); at >= s.lo && at <= s.hi {
				list = append(list, tick{at, f * math.Pow(10, e)})
			}
		}
	}
	return list
}

// ticks returns about n round numbers in a range, at least some amount apart.
func ticks(s span, n, least float64) []float64 {
	raw := (s.hi - s.lo) / n
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
	step = max(step, least)

	var list []float64
	for v := math.Ceil(s.lo/step) * step; v <= s.hi && len(list) <= int(2*n); v += step {
		if math.Abs(v) < step/1e6 { // what rounding leaves of 0
			v = 0
		}
		list = append(list, v)
	}
	return list
}

func label(v float64) string { return fmt.Sprintf("%.6g", v) }
