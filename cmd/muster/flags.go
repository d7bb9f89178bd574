package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/internal/misuse"
)

// usage marks what is wrong with a command's arguments as wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError(cmd, err)
		}
		return nil
	}
}

func usageError(cmd *cobra.Command, err error) error {
	return &misuse.Error{Err: fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")}
}

func withUsageErrors(cmd *cobra.Command) *cobra.Command {
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// natsFlag says where the NATS servers are. Secrets are no flags: everybody on the machine can read those.
func natsFlag(f *pflag.FlagSet, url *string) {
	f.StringVar(url, "nats", "nats://127.0.0.1:4222", "URL of the NATS server, or several with commas between; tls:// encrypts. The environment says who connects: "+access.Variables)
}
