//go:build !race

package virtual

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
)

// broken is what makes workers wrong in one way.
type broken struct {
	tamper   func(*pod) *tamper
	handler  func(*partition.Message)
	careless bool // a handler that is interrupted says that it has processed its message
	options  func(*options)
}

// TestVirtualCatchesBrokenVariants proves the auditor: workers that break one rule of
// the protocol are noticed, by a rule of the auditor that has to do with it.
func TestVirtualCatchesBrokenVariants(t *testing.T) {
	registerClock(t)
	for i, tt := range []struct {
		name   string
		broken broken
		by     []string
		from   uint64 // a seed that notices it, or a few before
	}{
		{"what was settled is known by its sequence alone", broken{tamper: bareSequences}, []string{"liveness", "order"}, 1},
		{"a message is acknowledged when it is delivered", broken{tamper: ackFirst}, []string{"liveness", "order"}, 1},
		{"every owner has the same fence", broken{handler: func(m *partition.Message) { m.Fence = partition.Fence{} }}, []string{"fence-unique"}, 1},
		{"a handler that is interrupted is taken to have succeeded", broken{careless: true}, []string{"liveness", "order"}, 1},
		{"a lease is valid although the server says nothing", broken{tamper: believe, options: longWork}, []string{"one-handler", "fence-grows"}, 1},
		{"a worker whose lease is not seen once is dead", broken{tamper: missLeases, options: longWork}, []string{"one-handler", "fence-grows", "liveness"}, 1},
		{"a lease is renewed whatever has become of it", broken{tamper: unconditional("$KV.work-heartbeats."), options: longWork}, []string{"one-handler", "fence-grows", "fence-unique"}, 3},
	} {
		if i >= *variantsFlag {
			break
		}
		t.Run(tt.name, func(t *testing.T) {
			for seed := tt.from; seed < tt.from+30; seed++ {
				o := run(t, seed, runTime, tt.broken)
				if len(o.violations) == 0 {
					continue
				}
				rule, _, _ := strings.Cut(o.violations[0], ":")
				if !slices.Contains(tt.by, rule) {
					t.Fatalf("caught by %s, want one of %v\n%s", rule, tt.by, o.tell(seed))
				}
				t.Logf("seed %d, after %v: %s", seed, o.took, o.violations[0])
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// longWork has handlers run when a lease ends.
func longWork(o *options) { o.work, o.every, o.deaf = 15*time.Second, 8*time.Second, 0 }

// ackOf returns the consumer and the sequence in the stream that an acknowledgement's
// subject is for.
func ackOf(subject string) (consumer string, sequence uint64, ok bool) {
	t := strings.Split(subject, ".")
	if len(t) < 9 || t[0] != "$JS" || t[1] != "ACK" {
		return "", 0, false
	}
	if len(t) >= 11 { // with domain and account
		t = t[2:]
	}
	sequence, err := strconv.ParseUint(t[5], 10, 64)
	return t[2] + "." + t[3], sequence, err == nil
}

func isAck(f *frame) bool {
	return len(f.data) == 0 || bytes.HasPrefix(f.data, []byte("+ACK"))
}

// bareSequences has a worker acknowledge each message whose sequence is not above what
// it has settled of the consumer, whatever has become of the stream meanwhile.
func bareSequences(*pod) *tamper {
	var mu sync.Mutex
	settled := make(map[string]uint64)
	return &tamper{
		toServer: func(_ *wire, f *frame) []*frame {
			if consumer, seq, ok := ackOf(f.subject()); ok && isAck(f) {
				mu.Lock()
				defer mu.Unlock()
				settled[consumer] = max(settled[consumer], seq)
			}
			return []*frame{f}
		},
		toClient: func(w *wire, f *frame) []*frame {
			consumer, seq, ok := ackOf(f.reply())
			mu.Lock()
			defer mu.Unlock()
			if !ok || !strings.HasPrefix(consumer, stream+".") || seq > settled[consumer] {
				return []*frame{f}
			}
			_ = w.out.put((&frame{args: []string{"PUB", f.reply()}, data: []byte("+ACK")}).encode(), nil)
			return nil
		},
	}
}

// ackFirst has a worker acknowledge a message when it comes.
func ackFirst(*pod) *tamper {
	return &tamper{toClient: func(w *wire, f *frame) []*frame {
		if consumer, _, ok := ackOf(f.reply()); ok && strings.HasPrefix(consumer, stream+".") {
			_ = w.out.put((&frame{args: []string{"PUB", f.reply()}, data: []byte("+ACK")}).encode(), nil)
		}
		return []*frame{f}
	}}
}

var expectedSequence = regexp.MustCompile(`Nats-Expected-Last-Subject-Sequence: ?(\d+)`)

// believe has a worker take what the server does not answer for a success: while its
// connection is silent, a round trip and the renewal of its lease.
func believe(p *pod) *tamper {
	return &tamper{toServer: func(w *wire, f *frame) []*frame {
		if !time.Now().Before(p.link.frozenUntil()) {
			return []*frame{f}
		}
		if f.op() == "PING" {
			w.in.jump([]byte("PONG\r\n"))
			return nil
		}
		if f.reply() != "" && (strings.HasPrefix(f.subject(), "$KV.work-heartbeats.") || strings.HasPrefix(f.subject(), "$KV.stable-ids.")) {
			if m := expectedSequence.FindSubmatch(f.header); m != nil {
				_, bucket, _ := strings.Cut(f.subject(), ".")
				bucket, _, _ = strings.Cut(bucket, ".")
				// The answer goes to the one subscription that all answers go to, whose number
				// is what the client gave it first.
				answer := fmt.Sprintf(`{"stream":"KV_%s","seq":%s}`, bucket, m[1])
				w.in.jump((&frame{args: []string{"MSG", f.reply(), p.answers(f.reply())}, data: []byte(answer)}).encode())
				return nil
			}
		}
		return []*frame{f}
	}, toClient: func(_ *wire, f *frame) []*frame {
		if f.op() == "MSG" || f.op() == "HMSG" {
			p.heard(f.args[1], f.args[2])
		}
		return []*frame{f}
	}}
}

// missLeases has a leader take a few of the leases that it sees for deleted ones.
func missLeases(p *pod) *tamper {
	return &tamper{toClient: func(_ *wire, f *frame) []*frame {
		if f.op() == "MSG" && strings.HasPrefix(f.subject(), "$KV.work-heartbeats.") && strings.HasPrefix(f.reply(), "$JS.ACK.") && p.chance(8) {
			f.args[0], f.header, f.data = "HMSG", []byte("NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"), nil
		}
		return []*frame{f}
	}}
}

// unconditional has a worker write to keys whatever their revision is.
func unconditional(prefix string) func(*pod) *tamper {
	return func(*pod) *tamper {
		return &tamper{toServer: func(_ *wire, f *frame) []*frame {
			if strings.HasPrefix(f.subject(), prefix) {
				f.header = bytes.ReplaceAll(f.header, []byte("Nats-Expected-Last-Subject-Sequence"), []byte("X"))
			}
			return []*frame{f}
		}}
	}
}
