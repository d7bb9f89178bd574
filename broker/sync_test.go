package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func TestSync(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		always bool
		every  time.Duration
	}{
		{"always", true, 2 * time.Minute},
		{"default", false, 2 * time.Minute},
		{"1s", false, time.Second},
		{"10ms", false, 10 * time.Millisecond},
		{"2m0s", false, 2 * time.Minute},
	} {
		s, err := parseSync(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		var o server.Options
		s.apply(&o)
		if o.SyncAlways != c.always || o.SyncInterval != c.every {
			t.Errorf("%q: the server syncs always: %v, or every %v; want %v, %v", c.text, o.SyncAlways, o.SyncInterval, c.always, c.every)
		}
		if s.String() != c.text {
			t.Errorf("%q is written as %q", c.text, s)
		}
	}
	for _, text := range []string{"", "never", "0s", "-1s", "5ms", "3m", "1"} {
		if _, err := parseSync(text); err == nil || !strings.Contains(err.Error(), "give always") {
			t.Errorf("%q: error %v, want one that says what to give", text, err)
		}
	}
}

func TestStart_Sync(t *testing.T) {
	t.Parallel()
	for _, sync := range []Sync{SyncAlways, SyncDefault} {
		s, err := Start(Options{Dir: t.TempDir(), Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		// What the running server has, not what it was given.
		if got := s.s.JetStreamConfig().SyncAlways; got != sync.always {
			t.Errorf("sync %v: the server syncs always: %v", sync, got)
		}
	}
}
