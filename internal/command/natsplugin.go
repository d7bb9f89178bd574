package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// introspect is the argument by which the nats command asks a plugin for its commands:
//
//	nats plugins register muster "$(command -v muster)"
//	nats muster partitions status --group orders
//
// The types below are the part of its answer that the nats command needs. It then runs the plugin with the words and flags
// that it was given, the positional arguments last.
const introspect = "--fisk-introspect"

type pluginCommand struct {
	Name     string          `json:"name"`
	Help     string          `json:"help"`
	HelpLong string          `json:"help_long,omitempty"`
	Version  string          `json:"version,omitempty"`
	Flags    []pluginFlag    `json:"flags,omitempty"`
	Args     []pluginArg     `json:"args,omitempty"`
	Commands []pluginCommand `json:"commands,omitempty"`
}

type pluginFlag struct {
	Name       string   `json:"name"`
	Help       string   `json:"help"`
	Default    []string `json:"default,omitempty"`
	Boolean    bool     `json:"boolean"` // false unless given
	Cumulative bool     `json:"cumulative"`
}

type pluginArg struct {
	Name       string `json:"name"`
	Help       string `json:"help"`
	Cumulative bool   `json:"cumulative"`
}

// writePlugin prints the commands below root as the nats command reads them.
func writePlugin(root *cobra.Command, to io.Writer) error {
	p := pluginOf(root)
	p.Version = root.Version
	if err := json.NewEncoder(to).Encode(p); err != nil {
		return fmt.Errorf("printing the commands: %w", err)
	}
	return nil
}

// pluginOf describes a command and those below it.
func pluginOf(cmd *cobra.Command) pluginCommand {
	p := pluginCommand{Name: cmd.Name(), Help: cmd.Short, HelpLong: cmd.Long}
	for _, below := range cmd.Commands() {
		if own := below.Name() == "help" || below.Name() == "completion"; !own && !below.Hidden {
			p.Commands = append(p.Commands, pluginOf(below))
		}
	}
	if len(p.Commands) > 0 {
		return p
	}

	// The flags of the commands above are repeated here: a flag may be there once on the way to a command.
	add := func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			p.Flags = append(p.Flags, pluginFlagOf(f))
		}
	}
	cmd.InheritedFlags().VisitAll(add)
	cmd.LocalFlags().VisitAll(add)
	p.Args = pluginArgsOf(cmd.Use)
	return p
}

// pluginFlagOf describes a flag. Those that are true unless given take a value, because the nats command knows no --flag=false.
// Letters are left out: they may be the nats command's own.
func pluginFlagOf(f *pflag.Flag) pluginFlag {
	p := pluginFlag{Name: f.Name, Help: f.Usage}
	switch f.Value.Type() {
	case "bool":
		p.Boolean = f.DefValue != "true"
	case "stringArray", "stringSlice", "intSlice", "durationSlice":
		p.Cumulative = true
	}
	if f.DefValue != "" && !p.Boolean && !p.Cumulative {
		p.Default = []string{f.DefValue}
	}
	return p
}

// pluginArgsOf describes the arguments that a usage line names, all of them as one that can be repeated. The nats command keeps
// the order only within one. None is required: some flags make arguments superfluous, and the command itself says which it lacks.
func pluginArgsOf(use string) []pluginArg {
	var names []string
	words := strings.Fields(use)
	for i, word := range words[1:] {
		before := words[i]
		if ofFlag := strings.HasPrefix(word, "-") || strings.HasPrefix(before, "-"); !ofFlag {
			names = append(names, word)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []pluginArg{{Name: "arguments", Help: strings.Join(names, " "), Cumulative: true}}
}
