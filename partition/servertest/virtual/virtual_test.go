//go:build !race

package virtual

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
)

var (
	hoursFlag        = flag.Float64("virtual.hours", 0.5, "how many hours of virtual time to run")
	seedFlag         = flag.Uint64("virtual.seed", 0, "the one seed to run, and to tell of; 0: as many as the hours need")
	fromFlag         = flag.Uint64("virtual.from", 1, "the first seed")
	variantsFlag     = flag.Int("virtual.variants", 3, "how many broken variants to run")
	patience         = flag.Duration("virtual.patience", 10*time.Minute, "how long a seed may take in real time, which are seconds")
	coordinationFlag = flag.Bool("virtual.coordination", false, "roll back the buckets, too")
)

// runTime is how long faults are played in the run of one seed.
const runTime = 30 * time.Minute

// maxFailed is how many seeds may fail until the rest is not run.
const maxFailed = 3

// today is when a run begins. Streams that are created again count from a moment of
// 2025, and virtual time must be later.
var today = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// outcome is what a seed's run has shown.
type outcome struct {
	took       time.Duration // virtual
	violations []string
	counts     counts
	settled    map[string][]time.Duration
	log        *history
	options    options
}

// run plays one seed.
func run(t *testing.T, seed uint64, d time.Duration, broken broken) (out outcome) {
	// The client and the server keep timers for the next that needs one, and those of
	// one bubble must not be used in another.
	runtime.GC()
	runtime.GC()
	// Outside of the bubble, in real time.
	var started atomic.Pointer[history]
	watchdog := time.AfterFunc(*patience, func() {
		if log := started.Load(); log != nil {
			fmt.Printf("seed %d, faults:\n%s\nlatest:\n%s\n", seed, log.schedule(), log.tail())
		}
		debug.SetTraceback("all")
		panic(fmt.Sprintf("seed %d: virtual time stands still: a goroutine waits for a lock, and the one that has it sleeps; or some repeat a thing without a pause", seed))
	})
	defer watchdog.Stop()
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(today)) // a bubble begins in 2000
			rng := rand.New(rand.NewPCG(seed, 1))
			out.options = optionsOf(seed, rng)
			out.options.broken = broken
			if broken.options != nil {
				broken.options(&out.options)
			}
			out.log = newHistory()
			started.Store(out.log)
			c := &chaos{environment: newEnvironment(t, out.options, out.log, rand.New(rand.NewPCG(seed, 2))), rng: rand.New(rand.NewPCG(seed, 3)), coordination: *coordinationFlag}
			c.play(d)
			out.took = time.Since(out.log.began)
			out.violations, out.settled, out.counts = c.audit.violated(), c.settled, c.audit.close()
		})
	})
	return out
}

func (o outcome) tell(seed uint64) string {
	return fmt.Sprintf("seed %d, after %v:\n%s\nfaults:\n%s\nlatest:\n%s\nagain: go test ./partition/servertest/virtual -run '^TestVirtual$' -virtual.seed %d",
		seed, o.took, strings.Join(o.violations, "\n"), o.log.schedule(), o.log.tail(), seed)
}

func TestVirtual(t *testing.T) {
	registerClock(t)
	want := time.Duration(*hoursFlag * float64(time.Hour))
	var took time.Duration
	var sum counts
	settled := make(map[string][]time.Duration)
	cpu, start := processTime(), time.Now()
	seeds, failed := 0, 0
	if *seedFlag != 0 {
		*fromFlag, want = *seedFlag, 1 // no more than this one
	}
	for seed := *fromFlag; took < want; seed++ {
		o := run(t, seed, runTime, broken{})
		took += o.took
		seeds++
		sum.add(o.counts)
		for what, s := range o.settled {
			settled[what] = append(settled[what], s...)
		}
		if len(o.violations) > 0 {
			t.Error(o.tell(seed))
			if failed++; failed == maxFailed {
				break
			}
			continue
		}
		if t.Failed() && failed == 0 {
			t.Fatalf("seed %d failed:\n%s", seed, o.tell(seed))
		}
		if *seedFlag != 0 {
			t.Log(o.tell(seed))
		}
	}
	cpu = processTime() - cpu
	t.Logf("%d seeds, %.1f simulated hours in %v of CPU time (%v passed): %.0f simulated hours per CPU hour", seeds, took.Hours(), cpu.Round(time.Second), time.Since(start).Round(time.Second), took.Hours()/cpu.Hours())
	t.Log(sum)
	for _, what := range slices.Sorted(maps.Keys(settled)) {
		s := settled[what]
		slices.Sort(s)
		t.Logf("%-22s %4d times, at rest after %v (median), %v (99 %%), %v (longest)", what, len(s), s[len(s)/2].Round(10*time.Millisecond), s[len(s)*99/100].Round(10*time.Millisecond), s[len(s)-1].Round(10*time.Millisecond))
	}
}

// registerClock keeps the server's clock of accesses, which is one for the process and
// would be the first bubble's, out of all bubbles. It only decides how long the server
// keeps blocks of a file in memory.
func registerClock(t *testing.T) {
	ats.Register()
	t.Cleanup(ats.Unregister)
}

// processTime is how long the process has used a processor.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(os.NewSyscallError("getrusage", err))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
