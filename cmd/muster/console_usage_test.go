package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
)

func TestConsoleRejectsWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	operators := file("operators", "operator olga operator-token-0123456789\n")
	bad := file("bad", "king olga short\n")
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"everything at once": {
			[]string{"--group", "a.b", "--group", "orders", "--group", "orders", "--store", dir, "--nodes", operators, "--http", "0.0.0.0:0", "--proxy-operators", "fab", "--nats", "://x"},
			[]string{`--group: "a.b" is no group`, `group "orders" is named twice`, "--store: it is of the group defender", "is a directory", "--nodes: ", "is a file",
				"--http: 0.0.0.0:0 is reached by other machines: give --token-file or --proxy", "--proxy-operators is for --proxy", "--nats: "},
		},
		"a bad token file":             {[]string{"--token-file", bad}, []string{"--token-file: " + bad, `line 1: role is "king"`, "has 5 characters"}},
		"no token file":                {[]string{"--token-file", filepath.Join(dir, "none")}, []string{"--token-file: ", "no such file"}},
		"an operator without an audit": {[]string{"--token-file", operators}, []string{"--audit: it is not given, and there is an operator"}},
		"an audit that is none":        {[]string{"--token-file", operators, "--audit", bad}, []string{"--audit: reading " + bad, "line 1 is no command"}},
		"a bad proxy":                  {[]string{"--proxy", "proxy.example", "--proxy-user-header", " "}, []string{`--proxy is "proxy.example": give an address`, "--proxy-user-header is empty"}},
		"an address without a port":    {[]string{"--http", "127.0.0.1"}, []string{`--http: it is "127.0.0.1": give host:port`}},
	} {
		code, out, errs := muster(append([]string{"console"}, tt.args...)...)
		if code != command.ExitUsage || out != "" {
			t.Errorf("%s: exit code %d, output %s", name, code, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: the error lacks %q: %s", name, want, errs)
			}
		}
		if strings.Contains(errs, "operator-token") {
			t.Errorf("%s: the error shows a token: %s", name, errs)
		}
	}
}
