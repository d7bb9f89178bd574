// Command measure measures Go code from its syntax and its types, and writes one table
// for Muster and the code beside it.
//
//	go run ./internal/measure                                          # Muster alone
//	go run ./internal/measure river=/tmp/river                         # beside a peer
//	go run ./internal/measure kgo@adb3a18@2026-08-04=/tmp/franz-go/pkg/kgo
//	go run ./internal/measure --markdown docs/results/measure.md river=/tmp/river
//
// A directory is measured with everything below it. The users of its names are looked for
// in the whole repository around it: the module of the nearest go.mod, with the modules
// nested in it. The commit and its date after @ are only shown.
//
// Third-party packages are not read, so a peer needs no download. An expression whose type
// comes out of such a package is left out of the arrows; names are found all the same.
//
// The page says below the table how each figure is counted. It exits with 2 if
// a flag is wrong or a directory holds no Go files, and with 1 for any other error.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
)

func main() {
	err := run(os.Args[1:], time.Now(), os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "measure:", err)
	}
	os.Exit(misuse.ExitCode(err))
}

// run measures Muster and the peers, and writes the page.
func run(args []string, now time.Time, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}

	own, err := ownSubject()
	if err != nil {
		return err
	}

	p := page{date: now.UTC(), command: o.command()}
	// An argument that is wrong is reported before minutes are spent on the others.
	trees, err := loadAll(append([]subject{own}, o.peers...))
	if err != nil {
		return err
	}
	for _, t := range trees {
		c := check(t)
		if o.list {
			writeList(out, t, c)
		} else {
			p.add(t, c)
		}
	}
	if o.list {
		return nil
	}

	var text bytes.Buffer
	p.write(&text)
	if o.markdown == "" {
		_, err = out.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(o.markdown, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
