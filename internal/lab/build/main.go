// Command build builds the laboratory unless that has been done, and prints where it is. See package lab.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/lab"
)

func main() {
	begin := time.Now()
	path, err := lab.Build(context.Background(), os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s (%d s)\n", path, int(time.Since(begin).Seconds()))
}
