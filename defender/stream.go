package defender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// Names of the group and its streams.
const (
	Group       = "defender"
	Stream      = "dc-notifications"
	Subject     = "dc.*.*.completion"
	AlarmStream = "dc-alarms"
	DeadStream  = "dc-dead"
)

// CompletionSubject is where the completions of a chamber are published.
func CompletionSubject(c Chamber) string { return "dc." + c.Tool + "." + c.Name + ".completion" }

// Partition returns the configuration of the defenders' group.
func Partition(slots int) partition.Config {
	return partition.Config{Name: Group, Stream: Stream, Subject: Subject, Slots: slots, MaxAge: 7 * 24 * time.Hour, Duplicates: 2 * time.Minute}
}

// Provision makes the streams of the defenders as far as they are missing:
// messages, alarms and dead letters.
func Provision(ctx context.Context, nc *nats.Conn, p partition.Config) error {
	if err := partition.Provision(ctx, nc, p); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("provisioning the alarm streams: %w", err)
	}
	for name, subjects := range map[string][]string{AlarmStream: {"dc-alarm.*.*.>", "dc-alarm-ack.*.*.>"}, DeadStream: {"dc-dead.*.*"}} {
		want := jetstream.StreamConfig{Name: name, Subjects: subjects, Storage: jetstream.FileStorage,
			MaxAge: 30 * 24 * time.Hour, Replicas: max(p.Replicas, 1), Duplicates: 2 * time.Minute}
		_, err := js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // of an earlier version, with other subjects
			_, err = js.UpdateStream(ctx, want)
		}
		if err != nil {
			return fmt.Errorf("provisioning stream %s: %w", name, err)
		}
	}
	return nil
}

// publish publishes a message to a stream and waits until it is stored.
func (d *Defender) publish(ctx context.Context, msg *nats.Msg) error {
	_, err := d.js.PublishMsg(ctx, msg)
	return err
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 1000 {
		s = s[:1000]
	}
	return s
}
