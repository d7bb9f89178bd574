package broker

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Sync says when a server syncs what it has acknowledged to the disk. It decides what a
// power cut loses; the end of the process loses nothing in any case. The zero value is
// SyncDefault. It implements pflag.Value.
type Sync struct {
	always bool
	every  time.Duration // 0: the server's default
}

// SyncAlways syncs each write before it is acknowledged: a power cut loses nothing.
// With one server each message costs one sync of the disk.
var SyncAlways = Sync{always: true}

// SyncDefault syncs every two minutes, as NATS servers do by default. A power cut loses
// what was acknowledged since, and streams, consumers and keys that are younger.
var SyncDefault = Sync{}

// defaultSync is the interval of SyncDefault.
const defaultSync = 2 * time.Minute

// The limits of an interval: with a shorter one a disk does little else, and a longer
// one than the server's default only loses more.
const (
	minSync = 10 * time.Millisecond
	maxSync = defaultSync
)

// parseSync reads "always", "default" or an interval of 10ms to 2m.
func parseSync(text string) (Sync, error) {
	switch text {
	case "always":
		return SyncAlways, nil
	case "default":
		return SyncDefault, nil
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < minSync || every > maxSync {
		return Sync{}, fmt.Errorf("reading when to sync: %q: give always, default (every two minutes) or an interval of %v to %v", text, minSync, maxSync)
	}
	return Sync{every: every}, nil
}

// String returns the text that parseSync reads.
func (s Sync) String() string {
	switch {
	case s.always:
		return "always"
	case s.every == 0:
		return "default"
	}
	return s.every.String()
}

// Set changes s to what parseSync reads from text.
func (s *Sync) Set(text string) error {
	parsed, err := parseSync(text)
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Type names the value in help texts.
func (*Sync) Type() string { return "always|INTERVAL|default" }

// apply sets the server's options.
func (s Sync) apply(o *server.Options) {
	o.SyncAlways = s.always
	o.SyncInterval = defaultSync
	if s.every != 0 {
		o.SyncInterval = s.every
	}
}
