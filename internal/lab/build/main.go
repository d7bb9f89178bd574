// Command build builds the laboratory unless that has been done, and prints where it is. With --real-nodes it also fetches what real
// nodes are made of, and --kubernetes chooses the version. See package lab.
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
	minor := flag.String("kubernetes", "", "minor version of Kubernetes, such as 1.37; default the lab's own")
	flag.Parse()
	begin := time.Now()
	path, err := build(context.Background(), *minor, *realNodes)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s (%d s)\n", path, int(time.Since(begin).Seconds()))
}

func build(ctx context.Context, minor string, realNodes bool) (path string, err error) {
	if flag.NArg() > 0 {
		return "", errors.New("usage: build [--kubernetes MINOR] [--real-nodes]")
	}
	release, err := lab.ReleaseOf(minor)
	if err != nil {
		return "", fmt.Errorf("--kubernetes: %w", err)
	}
	if path, err = lab.Build(ctx, release, os.Stderr); err == nil && realNodes {
		err = release.RealNodes(ctx)
	}
	return path, err
}
