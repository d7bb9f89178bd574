package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/survey"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// monitored starts a real server with a monitoring endpoint and a provisioned group.
func monitored(t *testing.T, always, limited bool) string {
	t.Helper()
	s := natstest.Start(t, natstest.MaxStore(1<<30), func(o *server.Options) {
		o.ServerName, o.HTTPHost, o.HTTPPort, o.SyncAlways = "n1", "127.0.0.1", server.RANDOM_PORT, always
	})
	nc := natstest.Connect(t, s.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(4)); err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, nc)
	stream, err := js.Stream(t.Context(), defender.Partition(4).Stream)
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.MaxBytes, c.Discard = -1, jetstream.DiscardNew
	if limited {
		c.MaxBytes = 100 << 20
	}
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return s.MonitorURL()
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		always, limited bool
		code            int
		say             []string
	}{
		"always, with a limit": {true, true, command.ExitOK, []string{"syncs before it acknowledges", "Nothing is lost: every server syncs", "with one replica there is no other copy"}},
		"default sync":         {false, true, command.ExitFailed, []string{"syncs every 2m0s", "Up to 2 minutes of acknowledged messages are lost", "sync_interval: always"}},
		"no limit":             {true, false, command.ExitFailed, []string{"has no size limit", "--discard new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := monitored(t, tt.always, tt.limited)
			code, out, stderr := muster("doctor", "--monitor", url)
			for _, want := range tt.say {
				if !strings.Contains(out, want) {
					t.Errorf("doctor does not say %q:\n%s", want, out)
				}
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d: %s\n%s", code, tt.code, stderr, out)
			}
			_, out, _ = muster("doctor", "--monitor", url, "--output", "json")
			var got struct {
				Servers []survey.Server
				Rows    []survey.Row
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Rows) < 10 || len(got.Servers) != 1 || got.Servers[0].Version != server.VERSION {
				t.Errorf("as JSON: %v: %s", err, out)
			}
		})
	}
}

func TestDoctor_badInput(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for name, tt := range map[string]struct {
		args []string
		code int
		say  string
	}{
		"no endpoint":         {[]string{"--monitor", "http://127.0.0.1:1"}, command.ExitFailed, "--monitor"},
		"no URL":              {[]string{"--monitor", "nats-0:8222"}, command.ExitUsage, "give http://HOST:8222"},
		"none":                {[]string{"--monitor", ""}, command.ExitUsage, "--monitor is empty"},
		"another server":      {[]string{"--monitor", other.URL}, command.ExitFailed, "http_port"},
		"unknown output":      {[]string{"--output", "yaml"}, command.ExitUsage, "text or json"},
		"stream of no server": {[]string{"--stream", "other", "--monitor", "LIVE"}, command.ExitFailed, "need a change"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.args[len(tt.args)-1] == "LIVE" {
				tt.args[len(tt.args)-1] = monitored(t, true, true)
			}
			code, out, stderr := muster(append([]string{"doctor"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stderr, tt.say) {
				t.Errorf("exit code %d, want %d; %q lacks %q\n%s", code, tt.code, stderr, tt.say, out)
			}
		})
	}
}

// TestAssess: of three servers the one that syncs least often decides, and a copy that is
// behind is told.
func TestAssess(t *testing.T) {
	t.Parallel()
	stream := func(current bool) survey.Stream {
		return survey.Stream{Name: "dc-notifications", Replicas: 3, MaxBytes: 1 << 20, Discard: "new", Leader: "n1",
			Peers: []survey.Peer{{Name: "n2", Current: current}, {Name: "n3", Current: true}}}
	}
	servers := func(sync time.Duration, current bool) []survey.Server {
		var all []survey.Server
		for i := range 3 {
			s := survey.Server{Name: fmt.Sprintf("n%d", i+1), Health: "ok", SyncAlways: true, MaxStorage: 1 << 30}
			if i == 0 {
				s.Streams = []survey.Stream{stream(current)}
			}
			if i == 2 && sync > 0 {
				s.SyncAlways, s.Sync = false, sync
			}
			all = append(all, s)
		}
		return all
	}
	for name, tt := range map[string]struct {
		servers []survey.Server
		wrong   []string
	}{
		"all sync always":  {servers(0, true), nil},
		"one every second": {servers(time.Second, true), []string{"1s of acknowledged messages are lost", "if another copy is down or behind"}},
		"a copy is behind": {servers(0, false), []string{"the copy of dc-notifications on n2 is offline or behind"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wrong strings.Builder
			for _, r := range survey.Assess(tt.servers, "defender", "dc-notifications") {
				if !r.OK {
					wrong.WriteString(strings.ToLower(r.Text))
				}
			}
			for _, want := range tt.wrong {
				if !strings.Contains(wrong.String(), strings.ToLower(want)) {
					t.Errorf("it doesn't say %q: %s", want, wrong.String())
				}
			}
			if len(tt.wrong) == 0 && wrong.Len() > 0 {
				t.Errorf("nothing is wrong, and it says %s", wrong.String())
			}
		})
	}
}
