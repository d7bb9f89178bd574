package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// options are what the flags say.
type options struct {
	args           []string
	only           *regexp.Regexp
	sample         int
	seed           uint64
	json, markdown string
	list, resume   bool
}

func parse(args []string, now time.Time) (options, error) {
	o := options{args: args}
	var only string
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&only, "run", "", "try the mutants whose names match this regular expression")
	flags.IntVar(&o.sample, "sample", 0, "try this many, drawn at random; 0: all")
	flags.Uint64Var(&o.seed, "seed", dayOf(now), "draw the sample with this seed; by default the date, so that it changes daily")
	flags.StringVar(&o.json, "json", "", "write the table to this file as JSON")
	flags.StringVar(&o.markdown, "markdown", "", "write the table to this file as Markdown")
	flags.BoolVar(&o.resume, "resume", false, "take what the file of --json says was caught, and try the others: for a run that was interrupted")
	flags.BoolVar(&o.list, "list", false, "only list the mutants")
	if err := flags.Parse(args); err != nil {
		return o, usageError{err}
	}
	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is not a flag: give --run, --sample, --seed, --json, --markdown, --resume or --list", flags.Arg(0)))
	}
	if o.sample < 0 {
		errs = append(errs, fmt.Errorf("--sample %d is not a number of mutants: give one above 0, or none for all", o.sample))
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		errs = append(errs, fmt.Errorf("--run %q is not a regular expression: %w", only, err))
	}
	if o.resume && o.json == "" {
		errs = append(errs, errors.New("--resume needs --json, the file with what was caught: give both"))
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "seed" && o.sample == 0 {
			errs = append(errs, errors.New("--seed draws nothing without --sample: give both"))
		}
	})
	if len(errs) > 0 {
		return o, usageError{errors.Join(errs...)}
	}
	return o, nil
}

// dayOf is the date as a number, such as 20261123.
func dayOf(t time.Time) uint64 {
	y, m, d := t.UTC().Date()
	return uint64(y)*10000 + uint64(m)*100 + uint64(d)
}

// choose returns the mutants that are to be tried, in the order of their names.
func (o options) choose(all []mutant) ([]mutant, error) {
	var out []mutant
	for _, m := range all {
		if o.only.MatchString(m.Name) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--run %q matches no mutant: see --list", o.only)
	}
	if o.sample == 0 || o.sample >= len(out) {
		return out, nil
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	out = out[:o.sample]
	slices.SortFunc(out, func(a, b mutant) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// command is how to make the same table.
func (o options) command() string {
	return strings.TrimSpace("go run ./internal/mutants " + strings.Join(o.args, " "))
}

// before returns what was caught by the run that is resumed, by mutant.
func (o options) before() (map[string]result, error) {
	out := make(map[string]result)
	if !o.resume {
		return out, nil
	}
	data, err := os.ReadFile(o.json)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	var t table
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--json %s can't be resumed, remove it: %w", o.json, err)}
	}
	for _, r := range t.Rows {
		if r.Verdict == caught {
			out[r.Name] = r
		}
	}
	return out, nil
}

// keep writes the files that were asked for.
func (o options) keep(t table) error {
	var errs []error
	for _, f := range []struct {
		name string
		data func() ([]byte, error)
	}{{o.json, t.json}, {o.markdown, t.markdown}} {
		if f.name == "" {
			continue
		}
		data, err := f.data()
		if err == nil {
			err = os.WriteFile(f.name, data, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// usageError is about what was given: a flag, or the header of a patch.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
