package quantity_test

import (
	"testing"

	"github.com/muster-dev/muster/internal/quantity"
)

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 pods", 1: "1 pod", 2: "2 pods"} {
		if got := quantity.Of(n, "pod"); got != want {
			t.Errorf("Of(%d) is %q, want %q", n, got, want)
		}
	}
}
