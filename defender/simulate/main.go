// Command simulate measures the decision layer of the defender on simulated chambers: how
// often it raises an alarm on processes that nothing is wrong with, and beside that how
// often it finds a fault.
//
//	go run ./defender/simulate                                       # the page, on standard output
//	go run ./defender/simulate --markdown docs/results/false-alarms.md
//	go run ./defender/simulate --quick                               # seconds, for tests
//	go run ./defender/simulate --seed 7 --process 'AR(1)'            # some processes, another seed
//
// Runs go through what a defender judges by: statistics of a trace, the verdict of the
// strategy, and the history that follows from the verdicts before. The same seed gives the
// same page, however many cores there are.
//
// --json keeps the figures, and --beside puts those of another version of the rules, kept
// that way, beside the measured ones. It exits with 2 if a flag is wrong and with 1 for any
// other error.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/internal/misuse"
)

func main() {
	err := command(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "simulate:", err)
	}
	os.Exit(misuse.ExitCode(err))
}

// reportSeed is that of the page. Rules were chosen with other seeds.
const reportSeed = 20261126

type options struct {
	quick                    bool
	seed                     uint64
	process                  *regexp.Regexp
	strategies               string
	markdown, keep, besideOf string
}

func parse(args []string, messages io.Writer) (options, error) {
	var o options
	var pattern string
	f := flag.NewFlagSet("simulate", flag.ContinueOnError)
	f.SetOutput(messages)
	f.BoolVar(&o.quick, "quick", false, "simulate few runs, in seconds")
	f.Uint64Var(&o.seed, "seed", reportSeed, "seed of all random numbers")
	f.StringVar(&pattern, "process", "", "simulate only processes whose names match this regular expression")
	f.StringVar(&o.strategies, "strategies", "", "judge by this strategy file instead of the default strategy")
	f.StringVar(&o.markdown, "markdown", "", "write the page to this file")
	f.StringVar(&o.keep, "json", "", "keep the figures in this file")
	f.StringVar(&o.besideOf, "beside", "", "show the figures of this file, kept by --json, beside the measured ones")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, misuse.Errorf("%w", err)
	}

	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("there is an argument %q: give flags only", f.Arg(0)))
	}
	var err error
	if o.process, err = regexp.Compile("(?i)" + pattern); err != nil {
		o.process, err = regexp.Compile("(?i)" + regexp.QuoteMeta(pattern))
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("--process is %q: %w", pattern, err))
	}
	if err := errors.Join(errs...); err != nil {
		return o, misuse.Errorf("%w", err)
	}
	return o, nil
}

// command simulates and writes the page.
func command(args []string, out, messages io.Writer) error {
	o, err := parse(args, messages)
	if err != nil {
		return err
	}
	set := strategy.Default()
	if o.strategies != "" {
		if set, err = strategy.Load(o.strategies); err != nil {
			return misuse.Errorf("%w", err)
		}
	}
	p := page{strategy: strategyName(set), seed: o.seed, sizes: full}
	if o.quick {
		p.sizes = quick
	}
	if o.besideOf != "" {
		if p.beside, err = readFigures(o.besideOf); err != nil {
			return err
		}
	}

	for _, process := range processes() {
		if !o.process.MatchString(process.name) {
			continue
		}
		tallies, err := simulate(set, process, p.sizes, o.seed)
		if err != nil {
			return err
		}
		p.rows = append(p.rows, row{process, figuresOf(process, tallies)})
	}
	if len(p.rows) == 0 {
		return misuse.Errorf("--process matches none of the processes: leave it out to simulate all")
	}
	return p.save(o, out)
}

// save writes what the options ask for.
func (p *page) save(o options, out io.Writer) error {
	if o.keep != "" {
		if err := p.keep(o.keep); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	p.write(&text)
	if o.markdown == "" {
		_, err := out.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(o.markdown, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// strategyName is that of the strategy which judges the simulated chambers.
func strategyName(set *strategy.Set) string {
	st, ok := set.Of(refOf(1, ""))
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%s, version %d", st.Name, set.Version())
}
