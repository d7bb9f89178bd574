//go:build !unix

package embedded

import (
	"context"
	"errors"
	"os"
)

func lock(context.Context, *os.File) (func(), error) {
	return nil, errors.New("the embedded store needs flock, which this operating system lacks: use a store over the network")
}
