package gem

import (
	"context"
	"fmt"

	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
)

// cuts is how often the link is cut.
const cuts = 50

// proxy is a link to equipment that is cut after a random number of bytes, within a message
// or between two.
type proxy struct {
	target   string
	listener net.Listener

	mu      sync.Mutex
	random  *rand.Rand
	left    int // cuts to come
	open    map[net.Conn]bool
	serving sync.WaitGroup
}

func startProxy(t *testing.T, target string, seed uint64) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listener: l, random: rand.New(rand.NewPCG(seed, 1)), left: cuts, open: map[net.Conn]bool{}}
	p.serving.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(t.Context(), near) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.serving.Wait()
	})
	return p
}

// serve connects a host until the link is cut.
func (p *proxy) serve(ctx context.Context, near net.Conn) {
	far, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil {
		_ = near.Close()
		return
	}
	bytes, whole := p.allow(near, far)
	var both sync.WaitGroup
	end := func() {
		_ = near.Close()
		_ = far.Close()
	}
	var mu sync.Mutex
	forward := func(to, from net.Conn) {
		defer end()
		buffer := make([]byte, 512)
		for {
			n, err := from.Read(buffer)
			mu.Lock()
			n = min(n, bytes)
			if !whole {
				bytes -= n
			}
			over := bytes == 0
			mu.Unlock()
			_, failed := to.Write(buffer[:n])
			if err != nil || failed != nil || over {
				return
			}
		}
	}
	both.Go(func() { forward(far, near) })
	both.Go(func() { forward(near, far) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, near)
	delete(p.open, far)
	p.mu.Unlock()
}

// allow notes connections and returns how many bytes they carry; all, if it is whole.
func (p *proxy) allow(conns ...net.Conn) (bytes int, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
	if p.left == 0 {
		return 1 << 30, true
	}
	p.left--
	return 50 + p.random.IntN(12_000), false
}

func (p *proxy) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left == 0
}

// TestHost_cuts: of a link that is cut at random no run is lost if the equipment spools.
// Without a spool each is taken whole, or it is said that it is not.
func TestHost_cuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		for _, spool := range []int{1 << 20, 0} {
			t.Run(fmt.Sprintf("seed %d, a spool of %d", seed, spool), func(t *testing.T) {
				t.Parallel()
				e := startEquipment(t, func(e *equipment) { e.spoolCap = spool })
				p := newProcess(e, 0, 4)
				link := startProxy(t, e.address, seed)
				r := newRig(t, planFor(t, 1, 4, 1+uint32(seed)*3, link.listener.Addr().String()))
				r.start()
				e.traced(1)
				runs := 0
				for ; !link.over() || runs < 20; runs++ {
					p.run(fmt.Sprintf("r%d", runs), 5+runs%20)
					// As slow as the link, so that it is cut at everything.
					e.waitFor(func() bool { return len(e.pending) < 20 || e.conn == nil && len(e.pending) < 200 })
					if spool == 0 {
						e.waitFor(func() bool { return e.conn != nil })
					}
				}
				e.waitFor(func() bool { return e.conn != nil })
				e.sent()
				p.run("last", 10)
				p.samples(10)
				r.reported(Taken, "c1/last")
				e.sent()
				r.stop()

				taken, incomplete := r.all(Taken), r.all(Incomplete)
				if spool > 0 {
					r.check("etch1", "c1", p)
					if len(incomplete) > 0 {
						t.Errorf("%q", incomplete)
					}
				} else {
					r.checkSaid(p)
				}
				t.Logf("%d cuts, %d runs: %d taken, %d said to be incomplete", cuts, len(p.want), len(taken), len(incomplete))
			})
		}
	}
}

// gap finds what is said of times in which the start or the end of a run may be lost.
var gap = regexp.MustCompile(`between (\S+) and (\S+), (?:are missing|and the equipment has no spool)`)

// checkSaid has each run be taken whole, or be said to be incomplete, or have its start and its
// end in gaps that are reported.
func (r *rig) checkSaid(p *process) {
	r.t.Helper()
	incomplete := strings.Join(r.all(Incomplete), "\n") + "\n"
	texts := append(r.all(Incomplete), r.all(Notice)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, want := range p.want {
		run := r.runs[defender.TChartKey{Chamber: defender.Chamber{Tool: "etch1", Name: "c1"}, Context: name}]
		if run != nil {
			if fault := p.fault(run); fault != "" {
				r.t.Errorf("run %s: %s", name, fault)
			}
			continue
		}
		end := want.start.Add(time.Duration(want.samples-1) * period)
		said := strings.Contains(incomplete, "/"+name+":") || inGap(texts, want.start) && inGap(texts, end)
		if !said {
			r.t.Errorf("run %s, from %s to %s, is not taken, and nothing says so", name, want.start, end)
		}
	}
}
