package partitions

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
)

func newMapping() *cobra.Command {
	var shards int
	var subject string
	cmd := &cobra.Command{
		Use:   "mapping",
		Short: "Show the subject mapping that NATS servers need for more than one stream",
		Long: "Mapping shows what belongs in the configuration of every NATS server that publishers\n" +
			"connect to if a group's slots are spread over several streams, and looks whether it\n" +
			"is in force: it exits with 1 if not. With --shards it shows what a group with\n" +
			"that many would need, and connects to no server. Publishers that call\n" +
			"partition.Config.PublishSubject need no mapping.",
		Example: "  muster partitions mapping\n  muster partitions mapping --shards 4",
		Args:    command.Args(cobra.NoArgs),
	}
	p := newGroupCommand(cmd)
	f := cmd.Flags()
	f.IntVar(&shards, "shards", 0, "streams that a group is to have, 2 to 64; without it those that the group has")
	f.StringVar(&subject, "subject", defender.Subject, "subject that publishers publish to, with --shards")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("shards") {
			c := partition.Config{Name: p.group, Subject: subject, Shards: shards}
			if err := errors.Join(command.CheckOutput(p.output), misuse.Shards(shards, shards), command.Unless(shards != 1, errors.New("--shards is 1: one stream needs no mapping"))); err != nil {
				return command.UsageError(cmd, err)
			}
			if _, to := c.Mapping(); to == "" {
				return command.UsageError(cmd, fmt.Errorf("--subject is %q: give one with a \"*\" for each part of the key, such as %s", subject, defender.Subject))
			}
			return p.showMapping(c, false, "")
		}
		if cmd.Flags().Changed("subject") {
			return command.UsageError(cmd, errors.New("--subject goes with --shards: the group knows its own"))
		}
		return p.checkMapping()
	}
	return cmd
}

// checkMapping shows the mapping of a group that there is, and whether the servers
// have it.
func (p *groupCommand) checkMapping() error {
	nc, err := p.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := partition.Open(nc, p.group).Config(p.cmd.Context())
	if err != nil {
		return err
	}
	if c.Shards <= 1 {
		return p.write(mappingView{Shards: 1, InForce: true}, func(out io.Writer) {
			_, _ = fmt.Fprintf(out, "Group %s has the one stream %s, and needs no mapping.\n", p.group, c.Stream)
		})
	}
	wrong := new(partition.MappingError)
	switch err := partition.Open(nc, c.Name).CheckMapping(p.cmd.Context()); {
	case err == nil:
		return p.showMapping(c, true, "It is in force on the server that was asked.")
	case errors.As(err, &wrong):
		if err := p.showMapping(c, false, "It is not in force: "+wrong.Error()+"."); err != nil {
			return err
		}
		return errMappingMissing
	default:
		return err
	}
}

var errMappingMissing = errors.New("the servers don't have the mapping, and publishers that don't call PublishSubject are refused: add the lines above to their configuration and reload it")

// mappingView is what --output json shows.
type mappingView struct {
	Shards  int      `json:"shards"`
	Streams []string `json:"streams,omitempty"`
	From    string   `json:"from,omitempty"`
	To      string   `json:"to,omitempty"`
	InForce bool     `json:"in_force"` // as far as was asked
}

func (p *groupCommand) showMapping(c partition.Config, inForce bool, told string) error {
	from, to := c.Mapping()
	v := mappingView{Shards: c.Shards, From: from, To: to, InForce: inForce}
	if c.Stream != "" {
		v.Streams = c.Streams()
	}
	return p.write(v, func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "# For group %s with %d streams: in the publishers' account, on every server.\nmappings {\n  %q: %q\n}\n", p.group, c.Shards, from, to)
		if told != "" {
			_, _ = fmt.Fprintf(out, "# %s\n", told)
		}
	})
}
