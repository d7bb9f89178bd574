package command

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/spf13/cobra"
)

// TestIntrospection: the nats command is told of each command with its flags, those of the commands above it included.
func TestIntrospection(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "muster", Short: "Root"}
	group := &cobra.Command{Use: "partitions", Short: "Groups"}
	group.PersistentFlags().StringP("group", "g", "defender", "the group")
	drain := &cobra.Command{Use: "drain WORKER... --reason TEXT", Short: "Drain workers", Long: "Drain workers, in full", RunE: func(*cobra.Command, []string) error { return nil }}
	drain.Flags().Bool("undo", false, "take it back")
	drain.Flags().Bool("wait", true, "wait until they have no slots")
	drain.Flags().StringArray("label", nil, "a label")
	drain.Flags().Int("internal", 3, "")
	if err := drain.Flags().MarkHidden("internal"); err != nil {
		t.Fatal(err)
	}
	status := &cobra.Command{Use: "show [NUMBER]", Short: "Show", RunE: drain.RunE}
	group.AddCommand(drain, status)
	root.AddCommand(group, &cobra.Command{Use: "rig", Short: "Internal", Hidden: true, RunE: drain.RunE})

	var out, errs bytes.Buffer
	if code := Run(root, []string{introspect}, &out, &errs); code != ExitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var got pluginCommand
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version == "" {
		t.Error("the version is missing")
	}
	got.Version = ""
	groupFlag := pluginFlag{Name: "group", Help: "the group", Default: []string{"defender"}}
	want := pluginCommand{Name: "muster", Help: "Root", Commands: []pluginCommand{{Name: "partitions", Help: "Groups", Commands: []pluginCommand{
		{
			Name: "drain", Help: "Drain workers", HelpLong: "Drain workers, in full",
			Flags: []pluginFlag{
				groupFlag,
				{Name: "label", Help: "a label", Cumulative: true},
				{Name: "undo", Help: "take it back", Boolean: true},
				{Name: "wait", Help: "wait until they have no slots", Default: []string{"true"}},
			},
			Args: []pluginArg{{Name: "arguments", Help: "WORKER...", Cumulative: true}},
		},
		{Name: "show", Help: "Show", Flags: []pluginFlag{groupFlag}, Args: []pluginArg{{Name: "arguments", Help: "[NUMBER]", Cumulative: true}}},
	}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
