package defender

import "errors"

// fencing acts on writes that the store refused because of their fence.
type fencing struct {
	cache   *cache
	metrics *Metrics
}

// checked returns the error of a write. If a newer owner has the chamber it drops what
// is cached of it.
func (f fencing) checked(c Chamber, err error) error {
	if errors.Is(err, ErrFenced) {
		f.cache.drop(c)
		f.metrics.fenceRejections.Inc()
	}
	return err
}
