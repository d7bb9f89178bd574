package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/misuse"
)

// Args has what check finds wrong with a command's arguments be wrong usage.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return UsageError(cmd, err)
		}
		return nil
	}
}

// UsageError returns err as wrong usage of a command, with where its help is: the process exits with 2.
func UsageError(cmd *cobra.Command, err error) error {
	return &misuse.Error{Err: fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
}

// WithUsageErrors has what is wrong with a command's flags be wrong usage, and returns the command.
func WithUsageErrors(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(UsageError)
	return cmd
}

// Unless returns nil if ok, else err. It is for lists of independent checks, which
// errors.Join puts together.
func Unless(ok bool, err error) error {
	if ok {
		return nil
	}
	return err
}
