package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestPruneImages: the images that were used last stay, and so do other files and a build
// that goes on.
func TestPruneImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ages := map[string]time.Duration{
		"image-a.tar": time.Hour, "image-b.tar": 3 * time.Hour, "image-c.tar": 2 * time.Hour,
		"image-d.7.tar": time.Minute, "image-e.8.tar": 48 * time.Hour, "lab-f": 100 * time.Hour,
	}
	for name, age := range ages {
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := pruneImages(dir, 2); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if want := []string{"image-a.tar", "image-c.tar", "image-d.7.tar", "lab-f"}; !slices.Equal(names, want) {
		t.Errorf("left: %v, want %v", names, want)
	}
}
