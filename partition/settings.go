package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds the settings in which all workers of a group must agree. They are in
// the record of its layout, and a worker compares its own with them before it joins: a
// worker with longer leases than its leader knows of is declared dead while it trusts
// its lease, and one with other limits would not know what its stream keeps.

// fillIn sets what a configuration that is not resolved leaves open to the group's values.
func fillIn(c Config, s record.Settings) Config {
	for _, f := range []struct {
		to   *time.Duration
		from record.Duration
	}{{&c.Storage.MaxAge, s.MaxAge}, {&c.Storage.Duplicates, s.Duplicates}, {&c.Delivery.AckWait, s.AckWait}, {&c.Lease.Heartbeat, s.HeartbeatInterval}, {&c.Lease.TTL, s.LeaseTTL},
		{&c.Lease.Margin, s.LeaseMargin}, {&c.Lease.IDTTL, s.IDTTL}, {&c.Lease.SuspicionGrace, s.SuspicionGrace}, {&c.Lease.SuspicionMargin, s.SuspicionMargin},
		{&c.Retry.Delay, s.Retry.Delay}, {&c.Retry.MaxDelay, s.Retry.MaxDelay}} {
		defaulted(f.to, time.Duration(f.from))
	}
	defaulted(&c.Storage.Replicas, s.Replicas)
	defaulted(&c.Delivery.InFlight, max(1, s.InFlight))
	defaulted(&c.Storage.MaxBytes, s.MaxBytes)
	defaulted(&c.Retry.Tries, s.Retry.Tries)
	defaulted(&c.Retry.PerKey, s.Retry.PerKey)
	defaulted(&c.Retry.PerSlot, s.Retry.PerSlot)
	if c.Retry.givesUp() {
		defaulted(&c.Retry.Attempts, s.Retry.Attempts)
	}
	return c
}

// SettingDifference is a setting that a worker or a caller of Provision has otherwise
// than its group.
type SettingDifference struct {
	Setting string // field of Config
	Group   string // the group's value
	Here    string // the configuration's
	limit   bool   // of the streams alone, so that it may change while workers run
}

// SettingsError says that a group has other settings than a configuration, and workers
// that rely on them.
type SettingsError struct {
	Group       string
	Differences []SettingDifference
	Workers     int // of the group, that are there
}

func (e *SettingsError) Error() string {
	each := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		each[i] = fmt.Sprintf("%s is %s in the group and %s here", d.Setting, d.Group, d.Here)
	}
	if e.Workers == 0 {
		return fmt.Sprintf("group %s has other settings (%s): give the group's values", e.Group, strings.Join(each, "; "))
	}
	return fmt.Sprintf("joining group %s: its settings differ (%s), and %d workers are there: give the group's values, or end all its workers first and start them with the new ones",
		e.Group, strings.Join(each, "; "), e.Workers)
}

// differences compares a group's record with a resolved configuration. A group of an
// earlier version has recorded no settings.
func differences(v record.Layout, c Config) []SettingDifference {
	var out []SettingDifference
	differ := func(setting string, limit bool, group, here any) {
		if group != here {
			out = append(out, SettingDifference{setting, fmt.Sprint(group), fmt.Sprint(here), limit})
		}
	}
	onOff := map[bool]string{true: "on", false: "off"}
	differ("Retry", false, onOff[v.Retry], onOff[!c.Retry.Disabled])
	if v.Settings == nil {
		return out
	}
	g, h := *v.Settings, settingsOf(c)
	differ("Storage.Replicas", false, g.Replicas, h.Replicas)
	differ("Storage.MaxAge", true, g.MaxAge, h.MaxAge)
	differ("Storage.MaxBytes", true, g.MaxBytes, h.MaxBytes)
	differ("Storage.Duplicates", true, g.Duplicates, h.Duplicates)
	differ("Delivery.AckWait", false, g.AckWait, h.AckWait)
	differ("Delivery.InFlight", false, max(1, g.InFlight), max(1, h.InFlight))
	differ("Lease.Heartbeat", false, g.HeartbeatInterval, h.HeartbeatInterval)
	differ("Lease.TTL", false, g.LeaseTTL, h.LeaseTTL)
	differ("Lease.Margin", false, g.LeaseMargin, h.LeaseMargin)
	differ("Lease.IDTTL", false, g.IDTTL, h.IDTTL)
	differ("Lease.SuspicionGrace", false, g.SuspicionGrace, h.SuspicionGrace)
	differ("Lease.SuspicionMargin", false, g.SuspicionMargin, h.SuspicionMargin)
	if v.Retry && !c.Retry.Disabled {
		differ("Retry.Tries", false, g.Retry.Tries, h.Retry.Tries)
		differ("Retry.Delay", false, g.Retry.Delay, h.Retry.Delay)
		differ("Retry.MaxDelay", false, g.Retry.MaxDelay, h.Retry.MaxDelay)
		differ("Retry.PerKey", false, g.Retry.PerKey, h.Retry.PerKey)
		differ("Retry.PerSlot", false, g.Retry.PerSlot, h.Retry.PerSlot)
		differ("Retry.Attempts", false, attemptsText(g.Retry.Attempts), attemptsText(h.Retry.Attempts))
	}
	return out
}

// attemptsText tells Retry.Attempts, which are 0 with Retry.KeepFailing.
func attemptsText(n int) string {
	if n == 0 {
		return "without a bound (KeepFailing)"
	}
	return strconv.Itoa(n)
}

// binding leaves out the differences that workers need not agree in.
func binding(all []SettingDifference) []SettingDifference {
	var out []SettingDifference
	for _, d := range all {
		if !d.limit {
			out = append(out, d)
		}
	}
	return out
}

// agree compares the settings of a configuration with the group's. Where nobody works
// the configuration wins. Where workers are there it does not, but for the limits of the
// streams, when setLimits says that they are to be changed: the settings of a worker are
// what it was started with, and are no decision to change the group's.
func agree(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, cfg Config, lay layout, setLimits bool) error {
	e, err := kv.Get(ctx, layoutKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return errNotProvisioned // by a replica that is behind
	}
	if err != nil {
		return fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	have, err := record.DecodeLayout(e.Value())
	if err != nil {
		return fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	all := differences(have, cfg)
	settings := settingsOf(cfg)
	next := have
	next.Retry, next.Settings = !cfg.Retry.Disabled, &settings
	next.Schema = record.LayoutSchemaOf(next)
	if len(all) == 0 && have.Schema == next.Schema {
		return nil
	}
	if len(binding(all)) > 0 || len(all) > 0 && !setLimits {
		there, err := workersThere(ctx, js, cfg)
		if err != nil {
			return err
		}
		if there > 0 {
			return &SettingsError{Group: cfg.Name, Differences: all, Workers: there}
		}
	}
	if err := changeRetry(ctx, js, cfg, lay, have.Retry); err != nil {
		return err
	}
	if have.Settings != nil {
		if err := changeStreams(ctx, js, cfg, lay); err != nil {
			return err
		}
	}
	if len(binding(all)) > 0 { // nobody works
		if err := provisionGeneration(ctx, js, kv, cfg, lay, setConsumers); err != nil {
			return fmt.Errorf("changing the consumers of group %s: %w", cfg.Name, err)
		}
	}

	_, err = kv.Update(ctx, layoutKey, record.Encode(next), e.Revision())
	if errors.Is(err, jetstream.ErrKeyExists) {
		return agree(ctx, js, kv, cfg, lay, setLimits) // somebody was first
	}
	if err != nil {
		return fmt.Errorf("recording the settings of group %s in bucket %s: %w", cfg.Name, kv.Bucket(), err)
	}
	return nil
}

// changeRetry creates the retry stream of a group that had none, or makes sure that nothing
// waits in that of a group that is to have none.
func changeRetry(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, had bool) error {
	switch {
	case had && cfg.Retry.Disabled:
		queued, err := readRetryQueue(ctx, js.Conn(), cfg.Name)
		if err != nil {
			return err
		}
		if queued.Messages > 0 {
			return fmt.Errorf("group %s has %d queued messages of %d keys, and this worker is configured with Retry off: turn it on until they are done", cfg.Name, queued.Messages, len(queued.Keys))
		}
	case !had && !cfg.Retry.Disabled:
		_, err := provisionRetry(ctx, js, cfg, lay)
		return err
	}
	return nil
}

// workersThere counts the workers with a lease.
func workersThere(ctx context.Context, js jetstream.JetStream, cfg Config) (int, error) {
	leases, err := js.KeyValue(ctx, cfg.bucketLeases())
	if err != nil {
		return 0, fmt.Errorf("opening bucket %s: %w", cfg.bucketLeases(), err)
	}
	there, err := listKeys(ctx, leases)
	if err != nil {
		return 0, fmt.Errorf("reading who works in group %s: %w", cfg.Name, err)
	}
	return len(there), nil
}

// changeStreams gives the streams of a group that is there other limits and replicas.
func changeStreams(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) error {
	streams := append(groupStreams(cfg, lay), eventStream(cfg))
	if cfg.Retry.givesUp() {
		streams = append(streams, deadLetterStream(cfg, lay))
	}
	for _, want := range streams {
		if want.Name == bucketPrefix+cfg.bucketIDs() {
			continue // other groups have it, too
		}
		s, err := js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("changing the settings of stream %s: %w", want.Name, err)
		}
		have := s.CachedInfo().Config
		next := have
		next.Replicas = want.Replicas
		if want.Retention == jetstream.WorkQueuePolicy {
			next.MaxAge, next.Duplicates = want.MaxAge, want.Duplicates
			if want.MaxBytes != 0 {
				next.MaxBytes = want.MaxBytes
			}
		}
		if next.Replicas == have.Replicas && next.MaxAge == have.MaxAge && next.MaxBytes == have.MaxBytes && next.Duplicates == have.Duplicates {
			continue
		}
		if _, err := js.UpdateStream(ctx, next); err != nil {
			return fmt.Errorf("changing stream %s to %d replicas, MaxAge %v, MaxBytes %d, Duplicates %v: %w", want.Name, next.Replicas, next.MaxAge, next.MaxBytes, next.Duplicates, err)
		}
	}
	return nil
}
