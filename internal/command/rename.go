package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Rename changes the names of commands in the help of cmd and all commands below it, for a
// binary in which they are called otherwise than in muster. The pairs are strings.NewReplacer's.
func Rename(cmd *cobra.Command, pairs ...string) {
	rename(cmd, strings.NewReplacer(pairs...))
}

func rename(cmd *cobra.Command, names *strings.Replacer) {
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = names.Replace(*text)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = names.Replace(f.Usage) })
	for _, below := range cmd.Commands() {
		rename(below, names)
	}
}
