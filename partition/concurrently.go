package partition

import (
	"context"
	"sync"
)

// concurrently calls f with 0 to n-1, at most limit at a time, and returns when all calls
// have. After the first error, which it returns, the context of the others ends and no
// further call begins.
func concurrently(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var wg sync.WaitGroup
	free := make(chan struct{}, limit)
	for i := range n {
		free <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			if err := f(ctx, i); err != nil {
				cancel(err) // the first one stays
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
