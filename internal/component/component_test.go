package component

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Cassandra, which takes its time, is started by its adapter's tests.
func TestComponentsServeAndStop(t *testing.T) {
	for _, c := range []Component{DynamoDBLocal(), Dynalite(), Moto(), Kafka()} {
		t.Run(c.Name, func(t *testing.T) {
			var s *Server
			t.Run("running", func(t *testing.T) {
				s = c.Start(t)
				if !strings.HasPrefix(s.Addr, "127.0.0.1:") {
					t.Errorf("it serves %s", s.Addr)
				}
				conn, err := net.Dial("tcp", s.Addr)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			})
			if s == nil {
				t.SkipNow()
			}
			if _, err := net.Dial("tcp", s.Addr); err == nil {
				t.Error("it still serves after its test")
			}
			if _, err := os.Stat(s.Work); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its data is still there: %v", err)
			}
		})
	}
}

// shell is a component that is a shell script.
func shell(script string) Component {
	return Component{
		Name: "shell", Version: "1", key: "shell", tools: []string{"sh"},
		fetch: func(_ context.Context, dir string) error {
			return os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o600)
		},
		start: func(dir, _ string) (invocation, error) {
			return invocation{program: "sh", args: []string{filepath.Join(dir, "script")}, ready: regexp.MustCompile(`ready (\S+)`), within: 5 * time.Second}, nil
		},
	}
}

func TestAComponentIsFetchedOnceHoweverManyWantIt(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := shell("")
	var fetches atomic.Int32
	fetch := c.fetch
	c.fetch = func(ctx context.Context, dir string) error { fetches.Add(1); return fetch(ctx, dir) }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := c.Install(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := fetches.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

func TestAFailedFetchLeavesNothingBehindAndSaysWhy(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	c := shell("")
	c.fetch = func(ctx context.Context, dir string) error {
		return command(ctx, dir, "sh", "-c", "touch half; echo no such package; exit 3")
	}
	_, err := c.Install(t.Context())
	if err == nil || !strings.Contains(err.Error(), "shell 1 can't be had") || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "muster-ci", "*shell-*"))
	for _, name := range left {
		if filepath.Ext(name) != ".lock" {
			t.Errorf("%s is left", name)
		}
	}
	c.tools = []string{"no-such-program"}
	if _, err := c.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-program is not installed") {
		t.Errorf("without its program: %v", err)
	}
}

func TestAComponentThatEndsBeforeItIsReadySaysWhatItPrinted(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := shell("echo the disk is full; exit 1")
	dir, err := c.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "ended at once") {
		t.Errorf("got %v", err)
	}
}

func TestAKilledComponentStartsAgainOnItsData(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c := shell("echo ready nowhere; exec sleep 600")
	dir, err := c.Install(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Kill()
	if !s.ended() {
		t.Error("it is still there")
	}
	s.Restart(t)
	if s.ended() || s.Addr != "nowhere" {
		t.Errorf("after the restart: ended %v, at %q", s.ended(), s.Addr)
	}
}

func TestVerifyRejectsWhatIsNotListed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.jar"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	const a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a.jar\n"
	for _, tt := range []struct{ name, sums, fault string }{
		{"the same", a, ""},
		{"another content", strings.Replace(a, "ca97", "ca98", 1), "a.jar: its SHA-256"},
		{"a file too many", "", "a.jar: its SHA-256"},
		{"a file too few", a + strings.Replace(a, "a.jar", "b.jar", 1), "b.jar: it was not fetched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := verify(dir, tt.sums)
			if tt.fault == "" && err != nil || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("got %v, want %q", err, tt.fault)
			}
		})
	}
}
