// Package component gets, starts, waits for and stops the servers that adapters are tested against, so that a test talks to the
// real thing over the wire:
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		servers.Stop()
//		os.Exit(code)
//	}
//
//	var servers component.Pool
//
//	func TestStore(t *testing.T) {
//		s := servers.Get(t, component.DynamoDBLocal()) // one process for the whole test binary
//		... http://s.Addr ...
//	}
//
// Each component is fetched by its ordinary package client, at the version named here, into a folder outside the checkout:
// muster-ci in $XDG_CACHE_HOME, by default ~/.cache. What can't be had makes the test skip, with the reason; with
// MUSTER_REQUIRE=all in the environment it fails instead. A component that was had and does not start always fails the test.
package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Component is a server that can be fetched and run.
type Component struct {
	Name    string // as people call it
	Version string

	key   string                                      // name of its folder, without the version
	tools []string                                    // programs that fetch and run it
	fetch func(ctx context.Context, dir string) error // puts everything into an empty folder
	start func(dir, work string) (invocation, error)  // how to run it; work is an empty folder for its data
}

// String returns name and version.
func (c Component) String() string { return c.Name + " " + c.Version }

// Start starts the component for one test and stops it when the test has ended. The test's log says what it ran on.
func (c Component) Start(t testing.TB) *Server {
	t.Helper()
	dir := c.Fetch(t)
	s, err := c.run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.showLogOf(t)
	return s
}

// Fetch gets the component if it is not there yet and returns its folder, without starting anything. The test's log says that it
// runs on it. If it can't be had the test is skipped or fails.
func (c Component) Fetch(t testing.TB) string {
	t.Helper()
	Using(t, c.Name, c.Version)
	dir, err := c.Install(t.Context())
	Need(t, err)
	return dir
}

// Need skips the test if err, which says what can't be had, is not nil. With
// MUSTER_REQUIRE=all in the environment the test fails instead.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("MUSTER_REQUIRE") == "all":
		t.Fatalf("%v, and MUSTER_REQUIRE=all asks for it", err)
	default:
		t.Skip(err)
	}
}

// Launch starts the component for a program that is no test, whose caller stops it.
func (c Component) Launch(ctx context.Context) (*Server, error) {
	dir, err := c.Install(ctx)
	if err != nil {
		return nil, err
	}
	return c.run(ctx, dir)
}

// Install returns the folder of the component, which it fills if need be. Two processes may want the same one at once: one of them
// builds it beside its place and renames it, so that what is there is always whole.
func (c Component) Install(ctx context.Context) (string, error) {
	for _, tool := range c.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s can't be had: %s is not installed", c, tool)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%s can't be had: no folder for it is known (%w)", c, err)
	}
	cache = filepath.Join(cache, "muster-ci")
	dir := filepath.Join(cache, c.key+"-"+c.Version)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("%s can't be had: %w", c, err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("%s can't be had: %w", c, err)
	}
	defer unlock()
	if exists(dir) {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(cache, "."+c.key+"-")
	if err != nil {
		return "", fmt.Errorf("%s can't be had: %w", c, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // nothing once it was renamed
	if err := c.fetch(ctx, tmp); err != nil {
		return "", fmt.Errorf("%s can't be had: %w", c, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", fmt.Errorf("%s can't be had: %w", c, err)
	}
	return dir, nil
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// command runs a program that fetches something; the error has the end of what it printed.
func command(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := guarded(cmd)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, tail(string(out), 600))
	}
	return nil
}

// guarded runs cmd to its end as a child that dies with this process and returns what it printed.
func guarded(cmd *exec.Cmd) ([]byte, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	done := make(chan error, 1)
	tether(cmd, func(err error) {
		if err == nil {
			err = cmd.Wait()
		}
		done <- err
	})
	err := <-done
	return []byte(out.String()), err
}

func tail(s string, most int) string {
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}

// Pool keeps at most one process of each component for a whole test binary. The zero value is ready. Tests that share one keep out
// of each other's way by using tables, queues or keyspaces of their own.
type Pool struct {
	mu      sync.Mutex
	servers map[string]*Server
}

// Get returns the running component, which it starts if it is the first to ask. The test's log says what it ran on.
func (p *Pool) Get(t testing.TB, c Component) *Server {
	t.Helper()
	dir := c.Fetch(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.servers[c.key]
	if s != nil && s.ended() {
		t.Fatalf("%s has ended by itself:\n%s", c, s.Log())
	}
	if s == nil {
		var err error
		if s, err = c.run(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Fatal(err)
		}
		if p.servers == nil {
			p.servers = map[string]*Server{}
		}
		p.servers[c.key] = s
	}
	s.showLogOf(t)
	return s
}

// Stop ends every process of the pool, for the end of TestMain.
func (p *Pool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		s.Stop()
	}
	p.servers = nil
}

var errNotReady = errors.New("it was not ready in time")
