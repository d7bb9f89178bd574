//go:build unix && load

package gem

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// What the load is: tools with one chamber each, and variables that are sampled ten times a
// second.
const (
	loadTools   = 100
	loadSensors = 100
	loadSamples = 200 // of a run
)

// Environment variables of the load: how long it takes, and that this process is the equipment.
const (
	loadTime      = "MUSTER_GEM_LOAD"
	loadEquipment = "MUSTER_GEM_LOAD_EQUIPMENT"
)

// loaded is what the equipment did.
type loaded struct {
	Runs    map[string]int // samples by tool and run
	Samples int
	Cuts    int // of links
}

// TestLoadEquipment is the process of the equipment. Its lines are the addresses, and what it
// did.
func TestLoadEquipment(t *testing.T) {
	lasting, err := time.ParseDuration(os.Getenv(loadEquipment))
	if err != nil {
		return // not started by TestLoad
	}
	var all []*equipment
	var links []*proxy
	for i := range loadTools {
		e := startEquipment(t, func(e *equipment) { e.spoolCap = 1 << 20 })
		link := startProxy(t, e.address, uint64(i))
		link.left = 0 // it is cut by the clock, not after bytes
		fmt.Println("address", link.listener.Addr())
		all, links = append(all, e), append(links, link)
	}
	did := loaded{Runs: map[string]int{}}
	var mu sync.Mutex
	var working sync.WaitGroup
	var busy atomic.Int32
	busy.Store(loadTools)
	working.Go(func() { did.Cuts = cutAtRandom(links, lasting) })
	for i, e := range all {
		working.Go(func() {
			p := newProcess(e, 0, loadSensors)
			e.traced(1)
			p.samples(1)
			work(p, lasting, i, &busy)
			e.sent()
			mu.Lock()
			defer mu.Unlock()
			did.Samples += p.sample
			for name, want := range p.want {
				did.Runs[fmt.Sprintf("etch%d:c1/%s", i+1, name)] = want.samples
			}
		})
	}
	working.Wait()
	line, err := json.Marshal(did)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("did", string(line))
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the host has ended
}

// cutAtRandom cuts links at random moments, all before the last tenth of the time, and returns
// how often it cut one.
func cutAtRandom(links []*proxy, lasting time.Duration) (n int) {
	random, begun := rand.New(rand.NewPCG(1, 1)), time.Now()
	moments := make([]time.Duration, cuts)
	for i := range moments {
		moments[i] = time.Duration(random.Int64N(int64(lasting * 9 / 10)))
	}
	slices.Sort(moments)
	for _, at := range moments {
		time.Sleep(at - time.Since(begun))
		if links[random.IntN(len(links))].cut() {
			n++
		}
	}
	return n
}

// cut cuts the link at whatever it carries, and reports whether it was up.
func (p *proxy) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
	return len(p.open) > 0
}

// work samples ten times a second, with one run after the other. Runs of tools begin at
// different times. All sample until the last run of any has ended.
func work(p *process, lasting time.Duration, tool int, busy *atomic.Int32) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	begun, n, over := time.Now(), 0, false
	for left := -1 - tool*(loadSamples+20)/loadTools; busy.Load() > 0; {
		<-tick.C
		p.samples(1)
		left++
		switch {
		case over:
		case left == 0 && time.Since(begun) > lasting:
			over = true
			busy.Add(-1)
		case left == 0:
			p.begin(fmt.Sprintf("r%d", n), loadSamples)
			n++
		case left == loadSamples:
			p.e.event(endEvent)
			left = -20
		}
	}
}

// TestLoad has a host collect from 100 tools with 100 variables at 10 Hz, for a minute or as long
// as the environment says, while links are cut at random. No run is lost, since the tools spool.
// It tells what that takes:
//
//	go test -tags load -run '^TestLoad$' -v ./defender/gem
func TestLoad(t *testing.T) {
	lasting := os.Getenv(loadTime)
	if lasting == "" {
		lasting = "1m"
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLoadEquipment$", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), loadEquipment+"="+lasting)
	in, out := startProcess(t, cmd)
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = in.Close() }()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	var addresses []string
	for len(addresses) < loadTools && lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "address "); ok {
			addresses = append(addresses, address)
		}
	}

	plan := planFor(t, 1, loadSensors, 1, addresses...)
	kind := plan.Types["etch"]
	kind.Timers = Timers{T5: Duration(2 * time.Second)}
	plan.Types["etch"] = kind
	r := newRig(t, plan)
	begun, before := time.Now(), usage(t)
	stop := r.startReal()
	var did loaded
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "did "); ok {
			if err := json.Unmarshal([]byte(text), &did); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	wall, after := time.Since(begun), usage(t)
	for run, samples := range did.Runs {
		r.reported(Taken, fmt.Sprintf("%s: %d samples of %d sensors", run, samples, loadSensors))
	}
	stop()
	for _, what := range []string{Incomplete, Refused} {
		if got := r.all(what); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	if taken := len(r.all(Taken)); len(did.Runs) < loadTools || taken != len(did.Runs) {
		t.Errorf("there were %d runs, and %d were taken", len(did.Runs), taken)
	}
	if noticed := len(r.all(Disconnected)); did.Cuts < cuts/2 || noticed < did.Cuts {
		t.Errorf("links were cut %d times, and the host noticed %d", did.Cuts, noticed)
	}
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("%d tools, %d runs, all taken whole; links cut %d times; %.0f values a second over %v; host, store and broker in one process: %.2f cores, at most %d MiB",
		loadTools, len(did.Runs), did.Cuts, float64(did.Samples*loadSensors)/wall.Seconds(), wall.Round(time.Second), cpu.Seconds()/wall.Seconds(), after.Maxrss>>10)
}

func usage(t *testing.T) syscall.Rusage {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// startReal starts the host with a store and a stream as in production.
func (r *rig) startReal() (stop func()) {
	t := r.t
	nc := natstest.Connect(t, natstest.Start(t).URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fdc.db")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := collect.New(store, nc)
	if err != nil {
		t.Fatal(err)
	}
	ledger := openLedger(t, r.ledger)
	taker := ingest.New(ingest.Config{Store: store, Publisher: ingest.Through(c)})
	r.host = New(Config{Plan: r.plan, Taker: taker, Store: store, Ledger: ledger, Report: r.note})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.host.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = store.Close()
	}
}
