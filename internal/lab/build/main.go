// Command build builds the laboratory unless that has been done, and prints where it is. With --real-nodes it also fetches what real
// nodes are made of. See package lab.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/lab"
)

func main() {
	realNodes := flag.Bool("real-nodes", false, "also fetch the packages of real nodes, and fail where they can't be had")
	flag.Parse()
	begin, ctx := time.Now(), context.Background()
	path, err := lab.Build(ctx, os.Stderr)
	if err == nil && *realNodes {
		err = lab.RealNodes(ctx)
	}
	if flag.NArg() > 0 {
		err = errors.New("usage: build [--real-nodes]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s (%d s)\n", path, int(time.Since(begin).Seconds()))
}
