package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
)

// SyncMode is one way to keep messages on the disk.
type SyncMode struct {
	Sync       string // always, default or an interval, as broker.Sync reads it
	Replicas   int    // of the stream, on as many servers
	Publishers int    // each publishes one message at a time
	Consume    bool   // each message is also consumed and acknowledged, and counts then
}

// SyncModes are all that are measured.
func SyncModes() []SyncMode {
	var all []SyncMode
	for _, consume := range []bool{false, true} {
		for _, replicas := range []int{1, 3} {
			for _, publishers := range []int{1, 32} {
				for _, sync := range []string{"default", "1s", "always"} {
					all = append(all, SyncMode{sync, replicas, publishers, consume})
				}
			}
		}
	}
	return all
}

func (m SyncMode) String() string {
	what := "publish"
	if m.Consume {
		what = "publish, consume, ack"
	}
	return fmt.Sprintf("%s, R%d, %d publishers, sync %s", what, m.Replicas, m.Publishers, m.Sync)
}

// SyncRun is one measurement of a mode.
type SyncRun struct {
	SyncMode
	PerSecond float64
	Fsyncs    float64 // that the disk did each second before and after: one file, 256 B each
}

// syncMessage is the size of a message, and of what is written before each fsync.
const syncMessage = 256

const syncStream = "sync"

// MeasureSync starts servers with their stores in dir, and publishes for a while.
func MeasureSync(ctx context.Context, m SyncMode, dir string, during time.Duration) (r SyncRun, err error) {
	r.SyncMode = m
	own, err := os.MkdirTemp(dir, "syncbench-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(own)) }()
	before, err := fsyncRate(own, during/4)
	if err != nil {
		return r, err
	}
	if r.PerSecond, err = m.measure(ctx, own, during); err != nil {
		return r, err
	}
	after, err := fsyncRate(own, during/4)
	r.Fsyncs = (before + after) / 2
	return r, err
}

func (m SyncMode) measure(ctx context.Context, dir string, during time.Duration) (float64, error) {
	options, err := broker.ClusterOptions(m.Replicas, 0, filepath.Join(dir, "store"), "")
	if err != nil {
		return 0, err
	}
	orders := make([]order, len(options))
	for i := range options {
		orders[i] = order{NATS: options[i], Sync: m.Sync}
	}
	brokers, err := startChildren(ctx, orders)
	if err != nil {
		return 0, err
	}
	defer brokers.stop()
	nc, err := nats.Connect(broker.URLs(options))
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	if err := broker.WaitReplicated(ctx, nc, m.Replicas); err != nil {
		return 0, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: syncStream, Subjects: []string{"sync.>"}, Replicas: m.Replicas, Retention: jetstream.WorkQueuePolicy})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithTimeout(ctx, during)
	defer stop()
	var wg sync.WaitGroup
	var published, settled atomic.Int64
	var failed atomic.Pointer[error]
	fail := func(err error) {
		if running.Err() == nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	if m.Consume {
		c, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1024})
		if err != nil {
			return 0, err
		}
		consuming, err := c.Consume(func(msg jetstream.Msg) {
			// The server's answer, as the library waits for it when a message is settled.
			wg.Go(func() {
				if err := msg.DoubleAck(running); err != nil {
					fail(err)
					return
				}
				settled.Add(1)
			})
		}, jetstream.PullMaxMessages(256))
		if err != nil {
			return 0, err
		}
		defer consuming.Stop()
	}
	began := time.Now()
	var publishers sync.WaitGroup
	for p := range m.Publishers {
		publishers.Go(func() {
			data := make([]byte, syncMessage)
			for running.Err() == nil {
				if _, err := js.Publish(running, fmt.Sprintf("sync.%d", p), data); err != nil {
					fail(err)
					return
				}
				published.Add(1)
			}
		})
	}
	publishers.Wait()
	took := time.Since(began)
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	counted := published.Load()
	if m.Consume {
		counted = settled.Load()
	}
	return float64(counted) / took.Seconds(), nil
}

// fsyncRate returns how often a second the disk syncs a file after a write.
func fsyncRate(dir string, during time.Duration) (rate float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data := make([]byte, syncMessage)
	n, began := 0, time.Now()
	for ; time.Since(began) < during; n++ {
		if _, err := f.Write(data); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
