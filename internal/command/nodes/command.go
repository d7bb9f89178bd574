package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/setting"
)

// Options fit the commands to a simulated cluster. The zero value is right for a real one.
type Options struct {
	// Clocks returns two clocks of the same time: that of the daemon that ticks, by which ages,
	// leases and waiting times are told, and one for commands that only look, by which
	// waiting takes as long as on the machine's. nil: both are the machine's.
	Clocks func() (ticking, looking nodes.Clock, err error)
	// ExtendRun adds to the command run; nil: nothing is added.
	ExtendRun func(run *Command)
}

func (o Options) clocks() (ticking, looking nodes.Clock, err error) {
	if o.Clocks == nil {
		return nodes.SystemClock{}, nodes.SystemClock{}, nil
	}
	return o.Clocks()
}

// now returns the time by the clock that ticks are made by.
func (o Options) now() (time.Time, error) {
	ticking, _, err := o.clocks()
	if err != nil {
		return time.Time{}, err
	}
	return ticking.Now(), nil
}

// Command is a command of the node plane: what all of them have in common is settings and a way to write.
type Command struct {
	*cobra.Command
	clocks func() (ticking, looking nodes.Clock, err error)
	config string
	read   connect.Document // by Sources
	output string
	values map[string]*string // of the settings' flags, by environment name
	groups []connect.Group
}

// NewCommand gives a command the flags of every setting, so that the same ones can be given to all, and lists those named in
// its help: all if shown is nil.
func NewCommand(o Options, cmd *cobra.Command, shown []string, extra ...connect.Group) *Command {
	n := &Command{Command: cmd, clocks: o.clocks, values: map[string]*string{}, groups: append(append(connect.Groups(), workersGroup()), extra...)}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&n.output, "output", "o", "table", "table or json")
	f.StringVar(&n.config, "config", "", "YAML file of settings, by the names below, or ssm:NAME, the parameter of SSM that holds them ($SETTINGS); a flag or the environment goes before it")
	for _, g := range n.groups {
		for _, i := range g.Settings {
			if n.values[i.Env] != nil || f.Lookup(i.Flag()) != nil {
				continue // several parts read it
			}
			n.values[i.Env] = f.String(i.Flag(), "", i.Meaning)
			if i.Default == "true" || i.Default == "false" {
				f.Lookup(i.Flag()).NoOptDefVal = "true"
			}
			f.Lookup(i.Flag()).Hidden = true // the help lists settings by itself
		}
	}
	n.SetRun(cmd.RunE)
	cmd.SetUsageFunc(func(c *cobra.Command) error { return n.usage(c.OutOrStderr(), shown) })
	command.WithUsageErrors(cmd)
	return n
}

// SetRun has the command do what run does, with secrets kept out of its error.
func (n *Command) SetRun(run func(*cobra.Command, []string) error) {
	n.RunE = func(cmd *cobra.Command, args []string) error { return redactedError(run(cmd, args)) }
}

// redactedError keeps secrets out of what is printed of an error. Wrong usage shows no value that may be one, and names the settings
// of references to secrets, which have to stay readable.
func redactedError(err error) error {
	if err == nil || errors.As(err, new(*misuse.Error)) {
		return err
	}
	text := err.Error()
	if redacted := secret.Redact(text); redacted != text {
		return errors.New(redacted)
	}
	return err
}

// Sources collects what was given for settings. A file that can't be read, or a name in it that is none, is wrong usage. A parameter of
// SSM that can't be read is a *connect.UnreadError: permissions and AWS are no usage.
func (n *Command) Sources() (connect.Sources, error) {
	s := connect.Sources{Env: os.LookupEnv, Flags: map[string]string{}}
	for env, v := range n.values {
		if n.Flags().Changed((setting.Info{Env: env}).Flag()) {
			s.Flags[env] = *v
		}
	}
	if n.output != "table" && n.output != "json" {
		return s, command.UsageError(n.Command, fmt.Errorf("--output is %q: write table or json", n.output))
	}
	d, err := n.document(s.Lookup)
	switch {
	case errors.As(err, new(*connect.UnreadError)):
		return s, err
	case err != nil:
		return s, command.UsageError(n.Command, err)
	}
	s.File, s.FileName = d.Values, d.Name
	n.read = d
	return s, nil
}

// document reads what --config names, or else what the variable SETTINGS holds or names.
func (n *Command) document(given setting.Lookup) (connect.Document, error) {
	known := connect.Known(n.groups)
	if n.config == "" {
		return connect.DocumentFromEnv(n.Context(), given, known)
	}
	d, err := connect.ReadDocument(n.Context(), n.config, known, given)
	if err != nil && !errors.As(err, new(*connect.UnreadError)) {
		err = fmt.Errorf("--config: %w", err)
	}
	return d, err
}

// opened is what commands look at that neither launch nor drain: the record and the journal.
type opened struct {
	*connect.Stores
	policy nodes.Policy
	clock  nodes.Clock
}

// stores opens the record and the event log that the settings name, which have to be there.
func (n *Command) stores(ctx context.Context) (opened, error) {
	clock, err := n.clock()
	if err != nil {
		return opened{}, err
	}
	src, err := n.Sources()
	if err != nil {
		return opened{}, err
	}
	s, err := connect.ParseStore(src.Lookup)
	if err != nil {
		return opened{}, command.UsageError(n.Command, err)
	}
	stores, err := connect.FindStores(ctx, s, connect.Options{Local: localStore{}})
	return opened{stores, s.Policy, clock}, err
}

// clock returns the clock that ticks are made by; what is wrong with it is wrong usage.
func (n *Command) clock() (nodes.Clock, error) {
	ticking, _, err := n.clocks()
	if err != nil {
		return nil, command.UsageError(n.Command, err)
	}
	return ticking, nil
}

// lookingClock returns the clock for commands that only look; what is wrong with it is wrong usage.
func (n *Command) lookingClock() (nodes.Clock, error) {
	_, looking, err := n.clocks()
	if err != nil {
		return nil, command.UsageError(n.Command, err)
	}
	return looking, nil
}

// sibling returns what to type for another command of the node plane, for messages that send there.
func (n *Command) sibling(name string) string { return n.Parent().CommandPath() + " " + name }

// style is colours for a person at a terminal, unless NO_COLOR (no-color.org) says otherwise.
func (n *Command) style() explain.Style {
	f, ok := n.OutOrStdout().(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return explain.Style{}
	}
	info, err := f.Stat()
	return explain.Style{Color: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// Write writes v as JSON, or calls table, as --output says.
func (n *Command) Write(v any, table func(io.Writer, explain.Style) error) error {
	if n.output == "json" {
		return command.WriteRedacted(n.OutOrStdout(), v, "  ")
	}
	return table(n.OutOrStdout(), n.style())
}

// usage writes the part of the help after the description.
func (n *Command) usage(w io.Writer, shown []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", n.UseLine())
	if n.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", n.Example)
	}
	fmt.Fprintf(&b, "\nFlags:\n%s", n.LocalFlags().FlagUsages())
	fmt.Fprint(&b, "\nSettings, by flag, by environment variable of the same name in capitals (--max-workers\nis MAX_WORKERS), or in the file of --config, in this order of precedence:\n")
	for _, g := range n.groups {
		var rows [][2]string
		for _, i := range g.Settings {
			if shown != nil && !slices.Contains(shown, i.Env) {
				continue
			}
			meaning := i.Meaning
			switch {
			case len(i.Default) > 60:
				meaning += " (" + n.sibling("settings") + " shows the default)"
			case i.Default != "":
				meaning += " (" + i.Default + ")"
			}
			rows = append(rows, [2]string{"--" + i.Flag(), meaning})
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n  %s\n", g.Name)
		width := 0
		for _, r := range rows {
			width = max(width, len(r[0]))
		}
		for _, r := range rows {
			fmt.Fprintf(&b, "    %-*s  %s\n", width, r[0], r[1])
		}
	}
	if shown != nil {
		fmt.Fprintf(&b, "\nAll other settings are accepted, too; %s lists them.\n", n.sibling("settings"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
