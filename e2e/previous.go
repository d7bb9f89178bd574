package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/local"
)

// provisionByPrevious returns a hook that has a worker of the previous version make the
// streams, buckets and records, so that they are as that version leaves them, and this
// version what that one does not make.
func provisionByPrevious(e2e Options) func(context.Context, service.Options, defender.Store) error {
	return func(ctx context.Context, o service.Options, store defender.Store) error {
		dir := filepath.Dir(o.Store)
		if err := provisionByThis(ctx, o, dir, store); err != nil {
			return err
		}

		nc, err := access.ConnectAs(o.NATS, "provisioning", o.User)
		if err != nil {
			return err
		}
		defer nc.Close()
		o.Pod, o.Store, o.LogFile = "provision", filepath.Join(dir, "provision.db"), filepath.Join(dir, "log", "provision-previous.log")
		l := local.Launch{Options: o, Program: e2e.Previous, Command: []string{"rig", "defender"}, Flags: []string{"--work", e2e.Work.String()}}
		cmd := exec.CommandContext(ctx, l.Program, l.Arguments()...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		if err := local.StartLowPriority(cmd); err != nil {
			return fmt.Errorf("starting the previous version: %w", err)
		}
		err = waitClaimed(ctx, nc, provisionWithin)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return errors.Join(err, cmd.Wait())
	}
}

// provisionWithin is how long the previous version may take, also on a busy machine.
const provisionWithin = 2 * time.Minute

// provisionByThis has this version make the streams of alarms and dead letters.
func provisionByThis(ctx context.Context, o service.Options, dir string, store defender.Store) error {
	o.Pod, o.LogFile = "provision", filepath.Join(dir, "log", "provision.log")
	d, err := service.Open(ctx, o, store)
	if err != nil {
		return err
	}
	return errors.Join(d.Handler.Provision(ctx), d.Close())
}

// waitClaimed waits until a worker has claimed an ID, which it does after it has provisioned
// everything.
func waitClaimed(ctx context.Context, nc *nats.Conn, within time.Duration) error {
	for end := time.Now().Add(within); !claimed(ctx, nc); {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: the previous version has provisioned the group", within)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func claimed(ctx context.Context, nc *nats.Conn) bool {
	js, err := jetstream.New(nc)
	if err != nil {
		return false
	}
	kv, err := js.KeyValue(ctx, defender.Group+"-heartbeats")
	if err != nil {
		return false
	}
	keys, err := kv.Keys(ctx)
	return err == nil && len(keys) > 0
}
