package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// refuseUnknown has every command that only has commands below it reject what is none
// of them, and say which one may be meant. Without it cobra prints the help and exits
// with 0, and a script doesn't notice its typing error.
func refuseUnknown(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		refuseUnknown(below)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		if args[0] == "help" {
			return helpAbout(cmd, args[1:])
		}
		return unknownCommand(cmd, args[0])
	}
	if help, _, err := cmd.Find([]string{"help"}); err == nil && help != cmd {
		help.Run = nil // which says that a topic is unknown, and exits with 0
		help.RunE = func(_ *cobra.Command, args []string) error { return helpAbout(cmd, args) }
	}
	// A flag of the command that was meant comes after the word that names it.
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// Commands below that have no such function of their own inherit this one.
		if args := cmd.Flags().Args(); len(args) > 0 && cmd.HasSubCommands() {
			return unknownCommand(cmd, args[0])
		}
		return UsageError(cmd, err)
	})
}

// helpAbout shows the help of what is below a command.
func helpAbout(cmd *cobra.Command, path []string) error {
	about, rest, err := cmd.Find(path)
	switch {
	case err != nil:
		return UsageError(cmd, err)
	case len(rest) > 0:
		return unknownCommand(about, rest[0])
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

func unknownCommand(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("%q is no command of %q", name, cmd.CommandPath())
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		slices.Sort(near)
		text += fmt.Sprintf(": did you mean %q?", strings.Join(slices.Compact(near), `" or "`))
	}
	return UsageError(cmd, fmt.Errorf("%s", text))
}
