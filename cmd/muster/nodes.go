package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/setting"
)

func newNodes() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Scale a K3s cluster on EC2, and see what the scaling does and why",
		Long: "Nodes is the node plane: it launches instances when pods wait or CPU is high,\n" +
			"counts them only once their nodes are Ready, and drains workers before it\n" +
			"terminates them. Every change is a transaction that survives a crash.",
		Example: "  muster nodes run --simulate\n" +
			"  muster nodes status\n" +
			"  muster nodes explain last",
	}
	cmd.AddCommand(newNodesRun(), newNodesTick(), newNodesStatus(), newNodesExplain(), newNodesEvents(), newNodesPause(), newNodesResume(), newNodesReplay(), newBacktestCommand(), newNodesDoctor(), newNodesSettings())
	return cmd
}

// nodesCommand is what the commands of the node plane have in common: settings and a way to write.
type nodesCommand struct {
	*cobra.Command
	config string
	output string
	values map[string]*string // of the settings' flags, by environment name
	groups []connect.Group
}

// newNodesCommand gives a command the flags of every setting, so that the same ones can be given to all, and lists those named in
// its help: all if shown is nil.
func newNodesCommand(cmd *cobra.Command, shown []string, extra ...connect.Group) *nodesCommand {
	n := &nodesCommand{Command: cmd, values: map[string]*string{}, groups: append(append(connect.Groups(), workersGroup()), extra...)}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&n.output, "output", "o", "table", "table or json")
	f.StringVar(&n.config, "config", "", "YAML file of settings, by the names below; a flag or the environment goes before it")
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
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return redactedError(run(cmd, args)) }
	cmd.SetUsageFunc(func(c *cobra.Command) error { return n.usage(c.OutOrStderr(), shown) })
	withUsageErrors(cmd)
	return n
}

// redactedError keeps secrets out of what is printed of an error. Wrong usage shows no value that may be one, and names the settings
// of references to secrets, which have to stay readable.
func redactedError(err error) error {
	if err == nil || errors.As(err, new(*misuse.Error)) {
		return err
	}
	text := err.Error()
	if redacted := nodes.Redact(text); redacted != text {
		return errors.New(redacted)
	}
	return err
}

// sources collects what was given for settings. A file that can't be read, or a name in it that is none, is wrong usage.
func (n *nodesCommand) sources() (connect.Sources, error) {
	s := connect.Sources{Env: os.LookupEnv, Flags: map[string]string{}, FileName: n.config}
	for env, v := range n.values {
		if n.Flags().Changed((setting.Info{Env: env}).Flag()) {
			s.Flags[env] = *v
		}
	}
	if n.output != "table" && n.output != "json" {
		return s, usageError(n.Command, fmt.Errorf("--output is %q: write table or json", n.output))
	}
	if n.config == "" {
		return s, nil
	}
	var err error
	if s.File, err = connect.ReadFile(n.config, connect.Known(n.groups)); err != nil {
		return s, usageError(n.Command, fmt.Errorf("--config: %w", err))
	}
	return s, nil
}

// opened is what commands look at that neither launch nor drain: the record and the journal.
type opened struct {
	*connect.Stores
	policy nodes.Policy
	clock  nodes.Clock
}

// stores opens the record and the journal that the settings name, which have to be there.
func (n *nodesCommand) stores(ctx context.Context) (opened, error) {
	clock, err := n.clock()
	if err != nil {
		return opened{}, err
	}
	src, err := n.sources()
	if err != nil {
		return opened{}, err
	}
	s, err := connect.ParseStore(src.Lookup)
	if err != nil {
		return opened{}, usageError(n.Command, err)
	}
	stores, err := connect.FindStores(ctx, s, connect.Options{Local: localStore{}})
	return opened{stores, s.Policy, clock}, err
}

// clock is commandClock's; a wrong one is wrong usage.
func (n *nodesCommand) clock() (nodes.Clock, error) {
	c, err := commandClock()
	if err != nil {
		return nil, usageError(n.Command, err)
	}
	return c, nil
}

// style is colours for a person at a terminal, unless NO_COLOR (no-color.org) says otherwise.
func (n *nodesCommand) style() explain.Style {
	f, ok := n.OutOrStdout().(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return explain.Style{}
	}
	info, err := f.Stat()
	return explain.Style{Color: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// write writes v as JSON, or calls table, as --output says.
func (n *nodesCommand) write(v any, table func(io.Writer, explain.Style) error) error {
	if n.output == "json" {
		return writeJSON(n.OutOrStdout(), v, "  ")
	}
	return table(n.OutOrStdout(), n.style())
}

// jsonText matches a string in JSON.
var jsonText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// writeJSON writes v, in one line if indent is empty, with whatever looks like a secret in any of its texts redacted.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := jsonText.ReplaceAllFunc(b.Bytes(), func(lit []byte) []byte {
		text, err := strconv.Unquote(string(lit))
		if err != nil { // an escape that Go has not; JSON's own decoder knows it
			if json.Unmarshal(lit, &text) != nil {
				return lit
			}
		}
		redacted := nodes.Redact(text)
		if redacted == text {
			return lit
		}
		again, err := json.Marshal(redacted)
		if err != nil {
			return []byte(`"[redacted]"`)
		}
		return again
	})
	_, err := w.Write(out)
	return err
}

// usage writes the part of the help after the description.
func (n *nodesCommand) usage(w io.Writer, shown []string) error {
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
				meaning += " (muster nodes settings shows the default)"
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
		fmt.Fprint(&b, "\nAll other settings are accepted, too; muster nodes settings lists them.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func newNodesSettings() *cobra.Command {
	var n *nodesCommand
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "List every setting with its value, where that comes from, and what it means",
		Long: "Settings shows what the node plane would run with: every setting, its value in\n" +
			"force, and whether that comes from a flag, the environment, the file or the\n" +
			"default. It exits with 2 if anything is wrong, and says what.",
		Example: "  muster nodes settings\n" +
			"  muster nodes settings --config muster.yaml --max-workers 20",
		Args: usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return n.showSettings() },
	}
	n = newNodesCommand(cmd, []string{}, daemonGroup())
	return cmd
}

// settingInForce is a setting with its value.
type settingInForce struct {
	Part    string `json:"part"`
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  string `json:"source"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
}

func (n *nodesCommand) showSettings() error {
	src, err := n.sources()
	if err != nil {
		return err
	}
	var list []settingInForce
	for _, g := range n.groups {
		for _, i := range g.Settings {
			v, ok := src.Lookup(i.Env)
			if !ok {
				v = i.Default
			}
			list = append(list, settingInForce{g.Name, i.Env, nodes.Redact(v), src.Source(i.Env), i.Default, i.Meaning})
		}
	}
	err = n.write(list, func(w io.Writer, style explain.Style) error {
		var rows [][]string
		part := ""
		for _, s := range list {
			name := s.Part
			if name == part {
				name = ""
			}
			part = s.Part
			rows = append(rows, []string{name, s.Name, s.Value, s.Source, s.Meaning})
		}
		return explain.WriteTable(w, style, []string{"PART", "SETTING", "VALUE", "FROM", "MEANING"}, rows)
	})
	if err != nil {
		return err
	}
	_, parseErr := connect.Parse(src.Lookup)
	_, daemonErr := parseDaemon(src.Lookup)
	_, workersErr := workers.ConfigFromEnv(src.Lookup)
	if err := setting.Join(parseErr, daemonErr, workersErr); err != nil {
		return usageError(n.Command, err)
	}
	return nil
}

// moment reads a time: one in RFC 3339, a date, or so long ago, for example 2h or 3d.
func moment(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write how long ago, for example 30m, 2h or 3d, or a time in UTC, for example 2026-11-21T09:30:00Z")
}

// momentFlag is a flag that holds a moment.
type momentFlag struct {
	at   time.Time
	text string
}

var _ pflag.Value = (*momentFlag)(nil)

func (m *momentFlag) String() string { return m.text }
func (m *momentFlag) Type() string   { return "time" }
func (m *momentFlag) Set(text string) (err error) {
	m.text = text
	clock, err := commandClock()
	if err != nil {
		return err
	}
	m.at, err = moment(text, clock.Now())
	return err
}
