package natstest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// Process is a server that is a process of its own: it can be killed.
type Process struct {
	Name string
	URL  string

	program string
	options natstest.Options
	cmd     *exec.Cmd
	input   io.Closer // the process ends with its input: it doesn't outlive the test, however that ends
}

// StartProcesses starts n servers of one cluster, nats-1 and so on, and waits until they keep
// streams on all of them. One alone is in no cluster.
func StartProcesses(t testing.TB, n int) []*Process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "natsd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, natstest.Program).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", natstest.Program, err, out)
	}

	ports := make([]int, n)
	for i := range ports {
		ports[i] = FreePort(t)
	}
	var all []*Process
	var urls []string
	for i, port := range ports {
		o := natstest.Options{Dir: filepath.Join(t.TempDir(), "nats"), Name: nodeName(i), Port: FreePort(t)}
		if n > 1 {
			o.ClusterPort, o.ClusterPorts = port, ports
		}
		p := &Process{Name: o.Name, URL: "nats://" + local(o.Port), program: program, options: o}
		p.Start(t)
		t.Cleanup(p.Kill)
		all, urls = append(all, p), append(urls, p.URL)
	}
	say(t, "NATS, processes")
	WaitReplicated(t, strings.Join(urls, ","), n)
	return all
}

// Start starts the process, or starts it again after [Process.Kill]: at the same address, with
// the same store.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.program) //nolint:noctx // it may outlive the test's context: it is killed
	p.cmd.Stderr = os.Stderr
	input, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.input = input

	if err := json.NewEncoder(input).Encode(natstest.Request{Start: &p.options}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		t.Fatalf("server %s does not answer: %v", p.Name, err)
	}
	var a natstest.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	if a.Err != "" {
		t.Fatalf("server %s: %s", p.Name, a.Err)
	}
}

// Kill kills the process and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.input.Close()
}

// Pause stops the process where it is, as a stalled machine would, until [Process.Resume].
func (p *Process) Pause() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume has a paused process continue.
func (p *Process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
