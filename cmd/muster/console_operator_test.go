package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// TestConsoleOperators: on the console of a real group viewers read and operators act, and what they did survives a restart.
func TestConsoleOperators(t *testing.T) {
	const viewer, operator = "viewer-token-0123456789", "operator-token-0123456789"
	p := newFactory(t)
	p.servers()
	p.as(role.Worker)
	defend := func(pod string) *program {
		return p.muster(role.Worker, "defender", "run", "--nats", p.url, "--store", p.store(), "--slots", "32", "--pod", pod)
	}
	defend("a")
	failing := defend("b")
	p.eventually("told how many workers there should be", func() error { return partition.Open(p.as(role.Operator), p.group.Name).Expect(t.Context(), 2) })
	p.collect("1", "480")
	p.collect("2", "120")

	tokens, audit := filepath.Join(p.dir, "tokens"), filepath.Join(p.dir, "audit")
	if err := os.WriteFile(tokens, []byte("viewer vera "+viewer+"\noperator olga "+operator+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--http", "127.0.0.1:0", "--token-file", tokens, "--audit", audit, "--group", "defender", "--group", "orders"}
	first, url := p.console(role.Console, args...)
	url += "/groups/defender"
	ask := func(method, url, token, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			return 0, err.Error()
		}
		return res.StatusCode, string(b)
	}
	has := func(texts ...string) func() error {
		return func() error {
			_, state := ask("GET", url+"/api/state", viewer, "")
			for _, text := range texts {
				if !strings.Contains(state, text) {
					return fmt.Errorf("the state lacks %s: %s", text, state)
				}
			}
			return nil
		}
	}
	command := func(token, name, target string) (int, string) {
		t.Helper()
		body, err := json.Marshal(map[string]string{"name": name, "target": target, "reason": "for a test"})
		if err != nil {
			t.Fatal(err)
		}
		return ask("POST", url+"/api/commands", token, string(body))
	}
	if status, _ := ask("GET", url+"/api/state", "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d", status)
	}
	p.eventually("everything is processed", has(`"waiting":0,`, `"stable":2`))

	// An alarm is acknowledged, on the stream that every console and command reads.
	var alarms []struct{ ID, State string }
	p.eventually("alarms", func() error {
		_, text := ask("GET", url+"/api/alarms", viewer, "")
		if err := json.Unmarshal([]byte(text), &alarms); err != nil || len(alarms) == 0 {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	if status, text := command(viewer, "acknowledge", alarms[0].ID); status != http.StatusForbidden {
		t.Errorf("a viewer acknowledges: status %d: %s", status, text)
	}
	if status, text := command(operator, "acknowledge", alarms[0].ID); status != http.StatusOK {
		t.Fatalf("an operator acknowledges: status %d: %s", status, text)
	}
	p.eventually("the acknowledgement is counted", has(`"acknowledged":1`, "is acknowledged by olga: for a test"))

	// A worker is drained and undrained; another one fails, and that is acknowledged.
	if status, text := command(operator, "drain-worker", "defender-0"); status != http.StatusOK {
		t.Errorf("draining: status %d: %s", status, text)
	}
	p.eventually("drained", has(`"drainedBy":{"at":`, `"by":"olga"`))
	if status, text := command(operator, "undrain-worker", "defender-0"); status != http.StatusOK {
		t.Errorf("undraining: status %d: %s", status, text)
	}
	failing.kill()
	p.eventually("failed", has(`"state":"FAILED"`))
	var state struct {
		Workers struct{ Workers []struct{ ID, State string } }
	}
	_, text := ask("GET", url+"/api/state", viewer, "")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	for _, w := range state.Workers.Workers {
		if w.State != "FAILED" {
			continue
		}
		if status, text := command(operator, "acknowledge-failure", w.ID); status != http.StatusOK {
			t.Errorf("acknowledging the failure: status %d: %s", status, text)
		}
	}
	gone := func() error {
		if _, text := ask("GET", url+"/api/state", viewer, ""); strings.Contains(text, `"state":"FAILED"`) || !strings.Contains(text, `"state":"STABLE"`) {
			return fmt.Errorf("the state is %s", text)
		}
		return nil
	}
	p.eventually("no longer shown", gone)

	// A restart forgets none of it.
	first.kill()
	args[1] = strings.TrimPrefix(strings.TrimSuffix(url, "/groups/defender"), "http://")
	p.console(role.Console, args...)
	p.eventually("still not shown", gone)
	p.eventually("what was done is in the timeline", has("acknowledge-failure", "drain-worker defender-0: for a test (olga)", "undrain-worker defender-0: for a test (olga)", `"acknowledged":1`))

	// The other group is not there, and its console says so.
	p.eventually("the other group is away", func() error {
		if _, text := ask("GET", strings.TrimSuffix(url, "defender")+"orders/api/state", viewer, ""); !strings.Contains(text, "group orders is away since") {
			return fmt.Errorf("the state is %s", text)
		}
		return nil
	})
}
