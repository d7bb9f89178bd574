//go:build !unix

package component

import (
	"context"
	"errors"
)

func lock(context.Context, string) (func(), error) {
	return nil, errors.New("fetching needs flock, which this operating system lacks")
}
