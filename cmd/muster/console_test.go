package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/browser"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// factory is a group as it runs in production: a stock nats-server with the shipped accounts, and every program a process of its own.
type factory struct {
	t     testing.TB
	dir   string
	url   string
	conf  string
	exe   string // nats-server
	group partition.Config
}

// program is a process with what it writes.
type program struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// start starts a program that ends with the test.
func (p *factory) start(env []string, exe string, args ...string) *program {
	p.t.Helper()
	x := &program{cmd: exec.CommandContext(context.WithoutCancel(p.t.Context()), exe, args...)}
	x.cmd.Env = append(os.Environ(), env...)
	x.cmd.Stdout, x.cmd.Stderr = x, x
	if err := x.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		if p.t.Failed() {
			text := x.text()
			p.t.Logf("%s %s:\n%s", exe, strings.Join(args, " "), text[max(0, len(text)-2000):])
		}
	})
	return x
}

// muster starts this binary's command as a user of the servers.
func (p *factory) muster(r role.Role, args ...string) *program {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	u := access.User{Name: p.group.User(r), Password: "p-" + string(r)}
	return p.start(append(u.Environ(), asMuster+"=1", "CLUSTER=simulated"), exe, args...)
}

func newFactory(t *testing.T) *factory {
	t.Helper()
	p := &factory{t: t, dir: t.TempDir(), group: defender.Partition(32)}
	p.buildServer()
	block, err := accounts.Account{Group: p.group, Permissions: defender.Permissions}.Config()
	if err != nil {
		t.Fatal(err)
	}
	at := freeAddress(t)
	p.url, p.conf = "nats://"+at, filepath.Join(p.dir, "nats.conf")
	text := fmt.Sprintf("listen: %s\njetstream { store_dir: %q }\n%s", at, filepath.Join(p.dir, "js"), block)
	if err := os.WriteFile(p.conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// buildServer builds the stock nats-server.
func (p *factory) buildServer() {
	p.t.Helper()
	p.exe = filepath.Join(p.dir, "nats-server")
	if out, err := exec.CommandContext(p.t.Context(), "go", "build", "-o", p.exe, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		p.t.Fatalf("building nats-server: %v: %s", err, out)
	}
	version, err := exec.CommandContext(p.t.Context(), p.exe, "--version").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	component.Using(p.t, "nats-server", strings.TrimPrefix(strings.TrimSpace(string(version)), "nats-server: "))
}

// freeAddress returns an address that nothing listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (p *factory) servers() *program {
	var env []string
	for _, r := range role.All {
		env = append(env, accounts.Variable(p.group.User(r))+"=p-"+string(r))
	}
	return p.start(env, p.exe, "-c", p.conf)
}

// as connects as a user of a role, once the servers are there.
func (p *factory) as(r role.Role) *nats.Conn {
	p.t.Helper()
	var nc *nats.Conn
	p.eventually("a connection", func() (err error) {
		nc, err = access.ConnectAs(p.url, "test", access.User{Name: p.group.User(r), Password: "p-" + string(r)})
		return err
	})
	p.t.Cleanup(nc.Close)
	return nc
}

func (p *factory) eventually(what string, ok func() error) {
	p.t.Helper()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	p.t.Fatalf("never %s: %v", what, err)
}

// console starts the console, and returns its address.
func (p *factory) console(r role.Role, args ...string) (*program, string) {
	p.t.Helper()
	x := p.muster(r, append([]string{"console", "--nats", p.url, "--store", p.store(), "--nodes", p.nodes()}, args...)...)
	address := regexp.MustCompile(`Console: (http://\S+)`)
	p.eventually("the console's address", func() error {
		if address.FindStringSubmatch(x.text()) == nil {
			return errors.New(x.text())
		}
		return nil
	})
	return x, address.FindStringSubmatch(x.text())[1]
}

// collect runs a collector to its end.
func (p *factory) collect(seed, runs string) {
	p.t.Helper()
	x := p.muster(role.Collector, "collect", "--nats", p.url, "--store", p.store(), "--slots", "32", "--chambers", "12", "--count", runs, "--rate", "200", "--seed", seed)
	if err := x.cmd.Wait(); err != nil {
		p.t.Fatalf("the collector: %v: %s", err, x.text())
	}
}

func (p *factory) store() string { return filepath.Join(p.dir, "results.sqlite") }

// nodes is the directory of the node plane's record and event log.
func (p *factory) nodes() string { return filepath.Join(p.dir, "nodes") }

// nodePlane starts the node plane's daemon on a simulated region, where pods come that bring a node.
func (p *factory) nodePlane() {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.start([]string{asMuster + "=1"}, exe, "nodes", "run", "--simulate", "--speed", "2", "--http", "127.0.0.1:0", "--dir", p.nodes())
}

// stateOf asks a console for its state.
func stateOf(t *testing.T, url string) (s struct {
	Next   int
	Moves  []json.RawMessage
	Health struct{ Serving, Expected int }
	Alarms struct{ Open, Acknowledged int }
	Nodes  struct {
		Error string
		Nodes []struct{ Instance string }
	}
}, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return s, string(b)
}

// TestConsoleInProduction: the console of a group and a node plane that run elsewhere shows what is there, loses nothing by a restart,
// and shows a failed worker and sources that are away.
func TestConsoleInProduction(t *testing.T) {
	p := newFactory(t)
	server := p.servers()
	p.as(role.Worker)
	p.nodePlane()

	// Three defenders, each a process, and a collector whose runs have faults.
	defenders := map[string]*program{}
	for _, pod := range []string{"a", "b", "c"} {
		defenders[pod] = p.muster(role.Worker, "defender", "run", "--nats", p.url, "--store", p.store(), "--slots", "32", "--pod", pod, "--node", "node-"+pod)
	}
	operator := p.as(role.Operator)
	p.eventually("told how many workers there should be", func() error { return partition.Open(operator, p.group.Name).Expect(t.Context(), 3) })
	p.collect("1", "480")
	p.collect("2", "120") // of other traces: every chamber alarms

	first, url := p.console(role.Viewer, "--http", "127.0.0.1:0")
	ctx, faults := browser.Open(t, url, 1440, 900)
	browser.Eventually(ctx, t, `document.querySelectorAll('[data-state="STABLE"]').length === 3 && document.getElementById('health').textContent.includes('3 of 3 workers stable')`)
	browser.Eventually(ctx, t, `document.querySelector('[data-number="waiting"] dd').textContent === '0' && document.querySelectorAll('#chamber-list button').length === 12`)
	browser.Eventually(ctx, t, `document.querySelector('[data-number="alarms"] dd').textContent > 0 && document.querySelectorAll('#chamber-list button.danger').length > 0`)
	browser.Click(ctx, t, `#chamber-list button`)
	browser.Eventually(ctx, t, `document.querySelectorAll('.chart svg').length > 3`)

	// The node plane launches a node for pods that wait.
	browser.Eventually(ctx, t, `document.querySelectorAll('[data-instance]').length >= 3 && document.getElementById('verdict').textContent !== ''`)
	browser.Eventually(ctx, t, `document.getElementById('events').textContent.includes('scaleUp.begun') && document.querySelectorAll('[data-phase]').length > 0`)

	// A defender is killed.
	defenders["b"].kill()
	browser.Eventually(ctx, t, `document.querySelectorAll('.tile[data-state="FAILED"]').length === 1 && document.getElementById('severity').textContent === 'Critical'`)
	browser.Eventually(ctx, t, `document.querySelectorAll('tr[data-move="takeover"]').length >= 10`)
	browser.Picture(ctx, t, "production", "header", "#workers", "#moves")

	// The console is killed, and another one shows the same.
	before, _ := stateOf(t, url)
	first.kill()
	browser.Eventually(ctx, t, `!document.getElementById('lost').hidden`)
	_, again := p.console(role.Viewer, "--http", strings.TrimPrefix(url, "http://"))
	browser.Eventually(ctx, t, `document.getElementById('lost').hidden && document.querySelectorAll('.tile[data-state="FAILED"]').length === 1`)
	browser.Eventually(ctx, t, `document.getElementById('nodes-error').hidden && document.getElementById('events').textContent.includes('scaleUp.begun')`)
	p.eventually("the same as before", func() error {
		after, text := stateOf(t, again)
		if after.Next < before.Next || len(after.Moves) < len(before.Moves) || after.Health != before.Health || after.Alarms != before.Alarms {
			return fmt.Errorf("before %+v, after %+v: %s", before, after, text[:min(len(text), 500)])
		}
		if after.Nodes.Error != "" || len(after.Nodes.Nodes) == 0 {
			return fmt.Errorf("the node plane after the restart: %+v", after.Nodes)
		}
		return nil
	})

	// The servers are away: the console says so, and shows what it knows.
	server.kill()
	browser.Eventually(ctx, t, `document.querySelector('[data-source="NATS"]')?.textContent.includes('is away since') && document.querySelectorAll('.tile').length === 3`)
	browser.Eventually(ctx, t, `document.querySelectorAll('.chart svg').length > 3`)
	browser.Run(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	browser.Eventually(ctx, t, `document.documentElement.scrollWidth <= 390`)
	restarted := p.servers()
	browser.Eventually(ctx, t, `document.getElementById('sources').hidden`)

	// The defender's pod is started again.
	p.muster(role.Worker, "defender", "run", "--nats", p.url, "--store", p.store(), "--slots", "32", "--pod", "b", "--node", "node-b")
	browser.Eventually(ctx, t, `document.querySelectorAll('[data-state="STABLE"]').length === 3 && document.getElementById('health').textContent.includes('3 of 3 workers stable')`)
	if text := server.text() + restarted.text(); strings.Contains(text, "Violation") {
		t.Errorf("the servers refused something: %s", text)
	}
	for _, f := range faults() {
		if !strings.Contains(f, "Failed to load resource") { // while there was no console
			t.Errorf("the page complains: %s", f)
		}
	}
}
