package nodes

import (
	"io"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/setting"
	"github.com/spf13/cobra"
)

func newSettings(o Options) *cobra.Command {
	var n *Command
	schema := false
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "List every setting with its value, where that comes from, and what it means",
		Long: "Settings shows what the node plane would run with: every setting, its value in\n" +
			"force, and whether that comes from a flag, the environment, the file or the\n" +
			"default. It exits with 2 if anything is wrong, and says what.",
		Example: "  muster nodes settings\n" +
			"  muster nodes settings --config muster.yaml --max-workers 20\n" +
			"  muster nodes settings --schema > muster.schema.json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if schema {
				return n.showSchema()
			}
			return n.showSettings()
		},
	}
	cmd.Flags().BoolVar(&schema, "schema", false, "print the JSON schema of the file of --config, and nothing else")
	n = NewCommand(o, cmd, []string{}, DaemonSettings())
	return cmd
}

// showSchema prints the schema of a settings file.
func (n *Command) showSchema() error {
	text, err := connect.Schema(n.groups)
	if err != nil {
		return err
	}
	_, err = n.OutOrStdout().Write(text)
	return err
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

func (n *Command) showSettings() error {
	src, err := n.Sources()
	if err != nil {
		return err
	}
	signals, _ := src.Lookup("SIGNALS")
	var list []settingInForce
	for _, g := range n.groups {
		for _, i := range g.Settings {
			v, ok := src.Lookup(i.Env)
			if !ok {
				v = i.Default
				if mode, differs := nodes.ModeDefault(nodes.SignalSource(signals), i.Env); differs {
					v = mode
				}
			}
			list = append(list, settingInForce{g.Name, i.Env, secret.Redact(v), src.Source(i.Env), i.Default, i.Meaning})
		}
	}
	err = n.Write(list, func(w io.Writer, style explain.Style) error {
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
		return command.UsageError(n.Command, err)
	}
	return nil
}
