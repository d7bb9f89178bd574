package explain

import (
	"fmt"

	"github.com/muster-dev/muster/nodes"
)

// buffers says how each capacity buffer stands.
func (p *page) buffers(stand []nodes.Headroom) {
	if len(stand) == 0 {
		return
	}
	p.title("Capacity buffers")
	rows := make([][]cell, 0, len(stand))
	for _, h := range stand {
		why, color := bufferText(h)
		rows = append(rows, []cell{c(h.Buffer), c(fmt.Sprint(h.Replicas)), c(fmt.Sprint(h.Ready)), c(fmt.Sprint(h.Coming)), colored(color, why)})
	}
	p.table("  ", []string{"BUFFER", "PODS", "READY", "COMING", "STATE"}, rows)
}

func bufferText(h nodes.Headroom) (text, color string) {
	switch {
	case h.Ignored != "":
		return "ignored: " + h.Ignored, yellow
	case h.Short() == 0 && h.Coming == 0:
		return "there is room for all of its pods", green
	case h.NeverFit != "":
		return "no node that can be launched would run its pods: " + h.NeverFit, yellow
	case h.Short() == 0:
		return "nodes are on their way", cyan
	}
	return fmt.Sprintf("%d of its pods have no room; the gates of buffer say what is in the way", h.Short()), yellow
}
