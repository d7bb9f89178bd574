// Command tennessee measures the decision layer of the defender on the Tennessee Eastman
// process, a simulated chemical plant that nothing was tuned to: how often an undisturbed
// plant raises an alarm, and how soon each of its disturbances does. A plain principal
// component analysis judges the same runs beside it.
//
//	python generate.py 1 2.5 > seed1.csv     # with internal/component/tennessee/requirements.txt
//	go run ./defender/tennessee --markdown docs/results/tennessee-eastman.md seed*.csv
//
// The same files give the same page. It exits with 2 if it is used wrongly and with 1 for any
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
		_, _ = fmt.Fprintln(os.Stderr, "tennessee:", err)
	}
	os.Exit(misuse.ExitCode(err))
}

// command judges the files and writes the page.
func command(args []string, out, messages io.Writer) error {
	f := flag.NewFlagSet("tennessee", flag.ContinueOnError)
	f.SetOutput(messages)
	markdown := f.String("markdown", "", "write the page to this file")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return misuse.Errorf("%w", err)
	}
	if f.NArg() == 0 {
		return misuse.Errorf("there is no file: give what generate.py wrote")
	}

	byLength := map[float64][]course{} // of a run, s
	for _, name := range f.Args() {
		c, err := read(name)
		if err != nil {
			return err
		}
		byLength[c.length()] = append(byLength[c.length()], c)
	}
	var text bytes.Buffer
	if err := writePage(&text, byLength); err != nil {
		return err
	}
	if *markdown == "" {
		_, err := out.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(*markdown, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
