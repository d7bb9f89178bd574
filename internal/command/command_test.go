package command_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/defender"
	"github.com/muster-dev/muster/internal/command/nodes"
)

// binaries are the commands that have binaries of their own beside muster, with what muster
// calls them.
var binaries = []struct {
	name, within string
	root         func() *cobra.Command
	lacks        []string // command lines that only muster has
}{
	{"muster-defender", "muster defender", defender.Binary, []string{"up", "rig defender", "broker run", "nodes status"}},
	{"muster-nodes", "muster nodes", nodes.Binary, []string{"run --simulate", "backtest", "up", "rig defender"}},
}

func run(root *cobra.Command, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = command.Run(root, args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestBinary: help and messages of a binary name its own commands.
func TestBinary(t *testing.T) {
	t.Parallel()
	for _, b := range binaries {
		t.Run(b.name+" helps", func(t *testing.T) {
			t.Parallel()
			checked := 0
			var walk func(cmd *cobra.Command)
			walk = func(cmd *cobra.Command) {
				path := strings.Fields(cmd.CommandPath())[1:]
				code, stdout, _ := run(b.root(), append(path, "--help")...)
				if code != command.ExitOK || !strings.Contains(stdout, "Usage:\n  "+b.name) {
					t.Errorf("%v --help: exit code %d, it says %q", path, code, stdout)
				}
				if strings.Contains(stdout, b.within+" ") {
					t.Errorf("%v --help names %s, which is another binary's:\n%s", path, b.within, stdout)
				}
				checked++
				for _, below := range cmd.Commands() {
					walk(below)
				}
			}
			walk(b.root())
			if checked < 10 {
				t.Errorf("only %d commands were found", checked)
			}
		})
		t.Run(b.name+" rejects what only muster has", func(t *testing.T) {
			t.Parallel()
			for _, line := range b.lacks {
				code, _, stderr := run(b.root(), strings.Fields(line)...)
				if code != command.ExitUsage || !strings.HasPrefix(stderr, b.name+": ") {
					t.Errorf("%s: exit code %d, it says %q", line, code, stderr)
				}
			}
		})
		t.Run(b.name+" tells its version", func(t *testing.T) {
			t.Parallel()
			if code, stdout, _ := run(b.root(), "--version"); code != command.ExitOK || !strings.HasPrefix(stdout, b.name+" version ") {
				t.Errorf("exit code %d, it says %q", code, stdout)
			}
		})
	}
}

// TestSibling: messages that are put together when they are shown name the binary's own commands.
func TestSibling(t *testing.T) {
	t.Parallel()
	if _, stdout, _ := run(nodes.Binary(), "run", "--help"); !strings.Contains(stdout, "(muster-nodes settings shows the default)") {
		t.Errorf("the help of run doesn't say where long defaults are: %s", stdout)
	}
}

func TestNATSFlag(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                              "nats://127.0.0.1:4222",
		"--nats nats://a:4222":          "nats://a:4222",
		"--context fab":                 access.ContextURL("fab"),
		"--nats nats://a --context fab": "give one of them",
		"--context fab --nats nats://a": "give one of them",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			var url string
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			command.NATSFlag(f, &url)
			if err := f.Parse(strings.Fields(args)); err != nil {
				url = err.Error()
			}
			if !strings.Contains(url, want) {
				t.Errorf("got %q, want %q", url, want)
			}
			if help := f.FlagUsages(); !strings.Contains(help, `(default "nats://127.0.0.1:4222")`) || strings.Count(help, "default") != 1 {
				t.Errorf("help is %s", help)
			}
		})
	}
}
