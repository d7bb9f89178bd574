package local

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/service"
)

// TestAtGateway: machines reach each server of a URL at its own port of their gateway.
func TestAtGateway(t *testing.T) {
	t.Parallel()
	const servers = "nats://127.0.0.1:4301,nats://127.0.0.1:4302"
	got, err := atGateway(servers)
	if err != nil {
		t.Fatal(err)
	}
	if want := "nats://10.77.0.1:4301,nats://10.77.0.1:4302"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	passed, err := forwards(servers)
	if err != nil {
		t.Fatal(err)
	}
	if len(passed) != 2 || passed["4301"] != "127.0.0.1:4301" || passed["4302"] != "127.0.0.1:4302" {
		t.Errorf("got %v", passed)
	}
}

// TestDefenders_contained: a defender in a container serves to others, and doesn't end with
// a standard input that it has not.
func TestDefenders_contained(t *testing.T) {
	t.Parallel()
	var asked Launch
	d := &Defenders{settings: service.Options{NATS: "nats://127.0.0.1:4301"}, logs: "/logs",
		hooks: Hooks{Process: func(_ context.Context, l *Launch) error {
			asked = *l
			l.Flags = append(l.Flags, "--work", "1s")
			return nil
		}}}
	l, err := d.contained(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	args := l.Arguments()
	for _, want := range []string{"--pod $(POD_NAME)", "--node $(NODE_NAME)", "--log-file /logs/$(POD_NAME).log", "--http :8081", "--work 1s"} {
		if !strings.Contains(strings.Join(args, " "), want) {
			t.Errorf("%q is not in %q", want, args)
		}
	}
	if slices.Contains(args, "--child") {
		t.Errorf("--child is in %q", args)
	}
	if asked.Options.Pod != "$(POD_NAME)" {
		t.Errorf("the hook was asked about pod %q", asked.Options.Pod)
	}
}
