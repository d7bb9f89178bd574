package main

import (
	"fmt"
	"runtime/debug"
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
		return usageError(cmd, err)
	})
}

// helpAbout shows the help of what is below a command.
func helpAbout(cmd *cobra.Command, path []string) error {
	about, rest, err := cmd.Find(path)
	switch {
	case err != nil:
		return usageError(cmd, err)
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
	return usageError(cmd, fmt.Errorf("%s", text))
}

// versionText says which version, revision and date a binary was built of, as far as
// that was stamped: "go run" stamps none of them.
func versionText(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	stamped := map[string]string{}
	for _, s := range info.Settings {
		stamped[s.Key] = s.Value
	}
	version := info.Main.Version
	if version == "" {
		version = "devel"
	}
	var more []string
	if r := stamped["vcs.revision"]; r != "" {
		more = append(more, "revision "+r[:min(len(r), 12)])
	}
	if at := stamped["vcs.time"]; at != "" {
		more = append(more, at)
	}
	if stamped["vcs.modified"] == "true" {
		more = append(more, "with changes")
	}
	if info.GoVersion != "" {
		more = append(more, info.GoVersion)
	}
	if len(more) == 0 {
		return version
	}
	return version + " (" + strings.Join(more, ", ") + ")"
}
