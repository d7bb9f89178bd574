package broker

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

func newAccounts() *cobra.Command {
	var group partition.Config
	var only, maxFile string
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "Write the NATS servers' account of a group, with a user for each role",
		Long: "Accounts writes what belongs in the configuration of every NATS server: an account\n" +
			"for a group of workers, and in it a user for each role with the permissions that it\n" +
			"needs and no others. Passwords are references to variables of the server's\n" +
			"environment, such as $DEFENDER_WORKER_PASSWORD. With --role it writes the\n" +
			"permissions of that role only.\n\n" +
			"Roles:\n" + roleHelp(),
		Example: "  muster broker accounts > accounts.conf\n" +
			"  muster broker accounts --role publisher\n" +
			"  muster broker accounts --group jobs --stream jobs --subject 'jobs.*.*' --shards 4",
		Args: command.Args(cobra.NoArgs),
	}
	f := cmd.Flags()
	f.StringVar(&group.Name, "group", defender.Group, "group of workers; the permissions of the group "+defender.Group+" include those for alarms")
	f.StringVar(&group.Stream, "stream", defender.Stream, "stream of the group's messages, or what the names of its streams begin with")
	f.StringVar(&group.Subject, "subject", defender.Subject, "subject that publishers publish to")
	f.IntVar(&group.Shards, "shards", 1, "streams that the group's slots are spread over")
	f.StringVar(&only, "role", "", "write the permissions of one role: "+strings.Join(roleNames(), ", "))
	f.StringVar(&maxFile, "max-file", "", "most that the account's streams may keep on the disks of all servers together, such as 18GiB; without it no bound")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if group.Slots = 512; group.Shards > 1 {
			group.Slots = group.Shards // which any number of shards divides
		}
		if err := errors.Join(
			misuse.Shards(group.Shards, group.Slots),
			command.Unless(only == "" || slices.Contains(roleNames(), only), fmt.Errorf("--role %q is unknown: give one of %s", only, strings.Join(roleNames(), ", "))),
			command.Unless(maxFile == "" || sizeText.MatchString(maxFile), fmt.Errorf("--max-file is %q: give a size such as 18GiB", maxFile)),
			command.Unless(only == "" || maxFile == "", errors.New("--max-file is for the account: leave out --role")),
		); err != nil {
			return command.UsageError(cmd, err)
		}
		text, err := accountsText(group, role.Role(only), maxFile)
		if err != nil {
			return command.UsageError(cmd, err)
		}
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	return command.WithUsageErrors(cmd)
}

var sizeText = regexp.MustCompile(`^[1-9][0-9]*([KMGT]i?B?)?$`)

// accountsText returns what the command writes.
func accountsText(group partition.Config, only role.Role, maxFile string) (string, error) {
	permissions := partition.Config.Permissions
	if group.Name == defender.Group {
		permissions = defender.Permissions
	}
	if only != "" {
		p, err := permissions(group, only)
		if err != nil {
			return "", err
		}
		return "permissions {\n" + accounts.Rules(p, 1) + "}\n", nil
	}
	text, err := accounts.Account{Group: group, Permissions: permissions, MaxFile: maxFile}.Config()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("# Written by muster broker accounts for group %s. Who may do what: docs/security.md.\n%s", group.Name, text), nil
}

func roleNames() []string {
	names := make([]string, len(role.All))
	for i, r := range role.All {
		names[i] = string(r)
	}
	return names
}

func roleHelp() string {
	lines := make([]string, len(role.All))
	for i, r := range role.All {
		lines[i] = fmt.Sprintf("  %-10s %s", r, r.About())
	}
	return strings.Join(lines, "\n")
}
