package audit

import "fmt"

// verdicts reports the violations of a run.
type verdicts struct {
	violated func(Violation)
	unfenced bool // fences aren't judged any more
}

func (v *verdicts) violate(r Rule, format string, args ...any) {
	ofFence := r == FenceGrows || r == FenceUnique || r == ZombieFence
	if v.unfenced && ofFence {
		return
	}
	v.violated(Violation{r, fmt.Sprintf(format, args...)})
}
