package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/linktest"
	"github.com/muster-dev/muster/internal/output"
)

// runtimeAPI is Lambda's side of the runtime API (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html): it gives out one
// invocation at a time and takes its response or error.
type runtimeAPI struct {
	next    chan invocation
	first   chan struct{} // closed when the first invocation is asked for: the function is initialised
	asked   sync.Once
	mu      sync.Mutex
	waiting map[string]chan answer
	number  int
}

type invocation struct {
	id, event string
	deadline  time.Time
}

type answer struct {
	body   string
	failed bool
}

func (a *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/2018-06-01/runtime/invocation/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	if rest == "next" {
		a.asked.Do(func() { close(a.first) })
		select {
		case in := <-a.next:
			h := w.Header()
			h.Set("Lambda-Runtime-Aws-Request-Id", in.id)
			h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(in.deadline.UnixMilli(), 10))
			h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:local:123456789012:function:muster")
			_, _ = io.WriteString(w, in.event)
		case <-r.Context().Done():
		}
		return
	}
	id, outcome, _ := strings.Cut(rest, "/")
	body, err := io.ReadAll(r.Body)
	a.mu.Lock()
	answered := a.waiting[id]
	delete(a.waiting, id)
	a.mu.Unlock()
	if err != nil || answered == nil || outcome != "response" && outcome != "error" {
		http.Error(w, "no such invocation", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	answered <- answer{string(body), outcome == "error"}
}

// function is a running bootstrap.
type function struct {
	*runtimeAPI
	cmd     *exec.Cmd
	output  *output.Buffer
	ended   chan error
	init    time.Duration // until it asked for its first invocation
	initCPU time.Duration
}

// buildTags leave out the runtime that Lambda no longer offers.
const buildTags = "lambda.norpc"

// buildDir is where the function is built, once for all tests.
var (
	buildDir string
	build    = sync.OnceValues(func() (string, error) {
		file := filepath.Join(buildDir, "bootstrap")
		return file, linktest.Build(file, buildTags)
	})
)

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "muster-lambda-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(buildDir)
	os.Exit(code)
}

// bootstrap returns the function as it is deployed: static and stripped.
func bootstrap(t *testing.T) string {
	t.Helper()
	began := time.Now()
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("bootstrap: %d bytes stripped, built in %.0f s", info.Size(), time.Since(began).Seconds())
	return file
}

// start runs the bootstrap with nothing but env in its environment.
func start(t *testing.T, file string, env map[string]string) *function {
	t.Helper()
	f := &function{
		runtimeAPI: &runtimeAPI{next: make(chan invocation), first: make(chan struct{}), waiting: map[string]chan answer{}},
		output:     &output.Buffer{}, ended: make(chan error, 1),
	}
	server := httptest.NewServer(f)
	f.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), file)
	f.cmd.Env = []string{"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(server.URL, "http://")}
	for k, v := range env {
		f.cmd.Env = append(f.cmd.Env, k+"="+v)
	}
	f.cmd.Stdout, f.cmd.Stderr = f.output, f.output
	began := time.Now()
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- f.cmd.Wait() }()
	t.Cleanup(func() {
		f.stop()
		server.Close()
		if t.Failed() {
			t.Logf("the function said:\n%s", f.output)
		}
	})
	select {
	case <-f.first:
		f.init, f.initCPU = time.Since(began), cpuTime(f.cmd.Process.Pid)
	case err := <-f.ended:
		f.ended <- err
	}
	return f
}

// stop kills it, as Lambda does, and returns its peak memory in bytes.
func (f *function) stop() int64 {
	_ = f.cmd.Process.Kill()
	err := <-f.ended
	f.ended <- err
	if u, ok := f.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss << 10
	}
	return 0
}

// cpuTime reads what a process has used so far from /proc; 0 where there is none.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a tick is 10 ms on Linux
}

// invoke gives the function an event and a minute for it, and returns its answer.
func (f *function) invoke(t *testing.T, event string) answer {
	t.Helper()
	f.mu.Lock()
	f.number++
	in := invocation{fmt.Sprintf("request-%d", f.number), event, time.Now().Add(time.Minute)}
	out := make(chan answer, 1)
	f.waiting[in.id] = out
	f.mu.Unlock()
	select {
	case f.next <- in:
	case err := <-f.ended:
		f.ended <- err
		t.Fatalf("the function has ended: %v\n%s", err, f.output)
	}
	select {
	case a := <-out:
		return a
	case err := <-f.ended:
		f.ended <- err
		t.Fatalf("the function ended while it handled %.100s: %v\n%s", event, err, f.output)
	}
	return answer{}
}
