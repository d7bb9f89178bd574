package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Bars draws named shares as horizontal bars of class "bar", negative ones of class
// "bar low". It returns "" when all shares are 0.
func Bars(title string, names []string, shares []float64) string {
	const row, nameWidth, width = 18.0, 210.0, 480.0
	largest := 0.0
	for _, s := range shares {
		largest = max(largest, math.Abs(s))
	}
	if largest == 0 {
		return ""
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<text class="title" x="2" y="15">%s</text>`, html.EscapeString(title))
	for i, s := range shares {
		y := titleHeight + row*float64(i)
		w := math.Abs(s) / largest * (width - nameWidth - 60)
		class := "bar"
		if s < 0 {
			class = "bar low"
		}
		fmt.Fprintf(&b, `<text class="tick" text-anchor="end" x="%.0f" y="%.1f">%s</text>`, nameWidth-6, y+11, html.EscapeString(names[i]))
		fmt.Fprintf(&b, `<rect class="%s" x="%.0f" y="%.1f" width="%.1f" height="11"/>`, class, nameWidth, y+2, w)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f">%+.0f %%</text>`, nameWidth+w+5, y+11, 100*s)
	}
	return svg(title, "", width, titleHeight+row*float64(len(shares)), b.String())
}
