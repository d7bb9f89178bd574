//go:build !race

package virtual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// broker is the one nats-server of an environment, and the copies that were made of
// its store.
type broker struct {
	dir    string // of the store
	spare  string // where the copies are
	copies []storeCopy
	made   int
	serves atomic.Pointer[natstest.Server]

	mu    sync.Mutex
	links []*link
}

// storeCopy is what the store was at one moment.
type storeCopy struct {
	dir string
	at  time.Time
}

// maxCopies is how many copies are kept.
const maxCopies = 3

func (b *broker) running() *natstest.Server { return b.serves.Load() }

func (b *broker) start() error {
	s, err := natstest.Run(natstest.In(b.dir), natstest.InProcess)
	if err != nil {
		return fmt.Errorf("on %s: %w", b.dir, err)
	}
	b.serves.Store(s)
	return nil
}

// stop ends the server in good order. While it does, it sleeps with a lock that
// requests need, and virtual time stands still for those that wait; so none reaches it.
func (b *broker) stop() { b.end((*link).hold) }

// cutOff ends the server; its clients learn nothing more from it.
func (b *broker) cutOff() { b.end((*link).sever) }

func (b *broker) end(before func(*link)) {
	s := b.serves.Swap(nil)
	if s == nil {
		return
	}
	b.mu.Lock()
	for _, l := range b.links {
		before(l)
	}
	b.mu.Unlock()
	synctest.Wait()
	s.Stop()
}

// crash ends the server as a kill -9 does: what it has not written by now is lost. The
// copy is made while every goroutine waits, and the orderly end writes to what is then
// replaced.
func (b *broker) crash() error {
	image := filepath.Join(b.spare, "image")
	synctest.Wait()
	if err := replace(image, b.dir); err != nil {
		return err
	}
	b.cutOff()
	return replace(b.dir, image)
}

// save makes a copy of the store as it is now.
func (b *broker) save() error {
	synctest.Wait()
	b.made++
	c := storeCopy{filepath.Join(b.spare, fmt.Sprint("copy-", b.made)), time.Now()}
	if err := replace(c.dir, b.dir); err != nil {
		return err
	}
	b.copies = append(b.copies, c)
	if len(b.copies) > maxCopies {
		return b.forget(b.copies[0])
	}
	return nil
}

func (b *broker) forget(c storeCopy) error {
	b.copies = slices.DeleteFunc(b.copies, func(o storeCopy) bool { return o == c })
	return os.RemoveAll(c.dir)
}

// restore puts streams of a server that is stopped back to what they were in a copy,
// all of them if none are named. Later copies hold messages that are lost now, and
// would bring them back, so they are forgotten.
func (b *broker) restore(c storeCopy, streams ...string) error {
	for _, other := range slices.Clone(b.copies) {
		if other.at.After(c.at) {
			if err := b.forget(other); err != nil {
				return err
			}
		}
	}
	if len(streams) == 0 {
		return replace(b.dir, c.dir)
	}
	for _, s := range streams {
		at := filepath.Join("jetstream", "$G", "streams", s)
		if err := replace(filepath.Join(b.dir, at), filepath.Join(c.dir, at)); err != nil {
			return err
		}
	}
	return nil
}

// replace makes a directory a copy of another; it is removed if there is no other.
func replace(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return os.CopyFS(to, os.DirFS(from))
}

// connect returns a connection to the server, and what it goes through.
func (b *broker) connect(name string, latency time.Duration) (*nats.Conn, *link, error) {
	l := newLink(b.running, latency)
	nc, err := b.connectBy(name, l)
	return nc, l, err
}

func (b *broker) connectBy(name string, l *link) (*nats.Conn, error) {
	b.mu.Lock()
	b.links = append(b.links, l)
	b.mu.Unlock()
	return nats.Connect("", nats.InProcessServer(l), nats.Name(name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}
