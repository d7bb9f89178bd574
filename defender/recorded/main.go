// Command recorded measures how well labelled faults are recognized on the recorded etches:
// with the faults of one experiment as the library it names those of another.
//
//	go run ./defender/recorded shared/data/etch/lam9600_machine.csv
//	go run ./defender/recorded --markdown docs/results/classification.md FILE
//
// Runs go through what a defender judges by, in each experiment the normal ones first. The
// same file gives the same page. It exits with 2 if it is used wrongly and with 1 for any
// other error.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/muster-dev/muster/internal/misuse"
)

func main() {
	err := command(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "recorded:", err)
	}
	os.Exit(misuse.ExitCode(err))
}

// command measures and writes the page.
func command(args []string, out, messages io.Writer) error {
	f := flag.NewFlagSet("recorded", flag.ContinueOnError)
	f.SetOutput(messages)
	markdown := f.String("markdown", "", "write the page to this file")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return misuse.Errorf("%w", err)
	}
	if f.NArg() != 1 {
		return misuse.Errorf("there are %d arguments: give the file of the recorded etches, lam9600_machine.csv", f.NArg())
	}

	experiments, err := read(f.Arg(0))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	writePage(&text, experiments)
	if *markdown == "" {
		_, err := out.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(*markdown, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
