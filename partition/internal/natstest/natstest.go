// Package natstest gives tests of package partition real NATS servers, without the server's
// module: it builds and runs the program natsd of module servertest, which is beside this
// one in the workspace.
package natstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Program is the path of natsd's package.
const Program = "github.com/muster-dev/muster/partition/servertest/natsd"

// Start starts a server that lives as long as the test, and returns its URL. Without the
// workspace around the module the test is skipped, or fails if MUSTER_REQUIRE is all.
func Start(t testing.TB, o Options) string {
	t.Helper()
	if reason := outside(t.Context()); reason != "" {
		if os.Getenv("MUSTER_REQUIRE") == "all" {
			t.Fatalf("%s, and MUSTER_REQUIRE=all asks for it", reason)
		}
		t.Skip(reason)
	}

	o.Dir = t.TempDir()
	a, err := ask(Request{Start: &o})
	if err != nil {
		t.Fatalf("starting a NATS server: %v", err)
	}
	t.Cleanup(func() {
		if _, err := ask(Request{Stop: a.URL}); err != nil {
			t.Errorf("stopping the NATS server: %v", err)
		}
	})
	// As internal/component of Muster's module writes it and its suites read it.
	t.Logf("running on %q version %q", "NATS, beside the test", a.Version)
	return a.URL
}

// outside says why there is no natsd to build, "" if there is.
func outside(ctx context.Context) string {
	work, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	switch file := strings.TrimSpace(string(work)); {
	case err != nil:
		return fmt.Sprintf("no go command to build a NATS server with: %v", err)
	case file == "" || file == "off":
		return "no workspace to build a NATS server in: run the test in a checkout of Muster, without GOWORK=off"
	}
	return ""
}

// natsd is the program: one process for all tests of a package.
type natsd struct {
	mu  sync.Mutex // one request at a time
	in  *json.Encoder
	out *bufio.Reader
}

var running = sync.OnceValues(run)

// run builds and starts the program. It ends when its standard input does, with this
// process.
func run() (*natsd, error) {
	dir, err := os.MkdirTemp("", "natsd-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what runs doesn't need its file any more

	file := filepath.Join(dir, "natsd")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", file, Program).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w\n%s", Program, err, out)
	}
	cmd := exec.CommandContext(context.Background(), file)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &natsd{in: json.NewEncoder(in), out: bufio.NewReader(out)}, nil
}

func ask(r Request) (Answer, error) {
	n, err := running()
	if err != nil {
		return Answer{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.in.Encode(r); err != nil {
		return Answer{}, fmt.Errorf("asking natsd: %w", err)
	}
	return readAnswer(n.out)
}

func readAnswer(from *bufio.Reader) (a Answer, err error) {
	line, err := from.ReadBytes('\n')
	if err == io.EOF { //nolint:errorlint // bufio returns it as it is
		return a, fmt.Errorf("natsd has ended: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return a, fmt.Errorf("reading the answer of natsd: %w", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("reading the answer of natsd, %q: %w", line, err)
	}
	if a.Err != "" {
		return a, fmt.Errorf("natsd: %s", a.Err)
	}
	return a, nil
}
