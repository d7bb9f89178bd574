package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/storetest"
)

var start = time.Unix(1730000000, 0)

func TestConformance(t *testing.T) {
	for name, opts := range map[string]Options{
		"with the default sizes":                      {},
		"with a snapshot and a new file all the time": {SnapshotAt: 1, SegmentAt: 300},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Open {
				dir := t.TempDir()
				return func(t *testing.T) (nodes.Store, nodes.Journal) { return open(t, dir, opts), openJournal(t, dir, opts) }
			})
		})
	}
}

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openJournal(t *testing.T, dir string, opts Options) *Journal {
	t.Helper()
	j, err := OpenJournal(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func acquire(t *testing.T, s *Store, n int) nodes.Record {
	t.Helper()
	r, err := s.Apply(t.Context(), nodes.AcquireLease{Owner: fmt.Sprint("w", n), Now: start.Add(time.Duration(n) * time.Hour), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAnyCutOfTheLogLosesOnlyWhatWasNotAcknowledged cuts the log as a crash may, at every byte of its last frame and at every
// seventh before it, and compares what is read with the writes that were whole.
func TestAnyCutOfTheLogLosesOnlyWhatWasNotAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	var ends []int64
	for n := range 4 {
		acquire(t, s, n)
		ends = append(ends, s.end)
	}
	whole, err := os.ReadFile(s.logPath(0))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		if cut%7 != 0 && int64(cut) < ends[2]-1 || cut%2 != 0 && testing.Short() {
			continue
		}
		for _, filler := range [][]byte{nil, make([]byte, 13)} { // cut off, or extended with zeros that never got their data
			want := int64(0)
			for _, e := range ends {
				if int64(cut) >= e {
					want++
				}
			}
			dir := t.TempDir()
			content := append(append([]byte(nil), whole[:cut]...), filler...)
			if err := os.WriteFile(filepath.Join(dir, "state-0.log"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, Options{})
			r, err := s.Load(t.Context())
			if err != nil || r.Revision != want {
				t.Fatalf("cut at byte %d of %d: revision %d, want %d, %v", cut, len(whole), r.Revision, want, err)
			}
			if got := acquire(t, s, 9); got.Revision != want+1 {
				t.Fatalf("cut at byte %d: the next write has revision %d", cut, got.Revision)
			}
			if r, err := open(t, dir, Options{}).Load(t.Context()); err != nil || r.Revision != want+1 {
				t.Fatalf("cut at byte %d: after the next write revision %d, %v", cut, r.Revision, err)
			}
			_ = s.Close()
		}
	}
}

func TestDamageBeforeTheEndIsReportedAndNotSkipped(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	acquire(t, s, 0)
	first := s.end
	acquire(t, s, 1)
	content, _ := os.ReadFile(s.logPath(0))
	content[first-2] ^= 1
	if err := os.WriteFile(s.logPath(0), content, 0o600); err != nil {
		t.Fatal(err)
	}
	var ce *CorruptError
	if _, err := Open(dir, Options{}); !errors.As(err, &ce) {
		t.Errorf("got %v, want a *CorruptError", err)
	}
}

func TestADamagedSnapshotIsReported(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{SnapshotAt: 1})
	acquire(t, s, 0)
	content, _ := os.ReadFile(s.path("state.snap"))
	if err := os.WriteFile(s.path("state.snap"), content[:len(content)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	var ce *CorruptError
	if _, err := Open(dir, Options{}); !errors.As(err, &ce) {
		t.Errorf("got %v, want a *CorruptError", err)
	}
}

// TestACrashWithinASnapshotLosesNothing leaves behind what each step of a snapshot leaves behind.
func TestACrashWithinASnapshotLosesNothing(t *testing.T) {
	for name, leave := range map[string]func(dir string){
		"the next log, empty":     func(dir string) { _ = os.WriteFile(filepath.Join(dir, "state-1.log"), nil, 0o600) },
		"the next log, not empty": func(dir string) { _ = os.WriteFile(filepath.Join(dir, "state-1.log"), []byte("old"), 0o600) },
		"a half-written snapshot": func(dir string) { _ = os.WriteFile(filepath.Join(dir, "state.snap.new"), []byte("half"), 0o600) },
		"the log before this one": func(dir string) { _ = os.WriteFile(filepath.Join(dir, "state-99.log"), []byte("x"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			acquire(t, open(t, dir, Options{}), 0)
			leave(dir)
			s := open(t, dir, Options{SnapshotAt: 1})
			acquire(t, s, 1) // makes a snapshot
			acquire(t, s, 2)
			r, err := open(t, dir, Options{}).Load(t.Context())
			if err != nil || r.Revision != 3 {
				t.Errorf("revision %d, want 3, %v", r.Revision, err)
			}
		})
	}
}

func TestClustersShareADirectory(t *testing.T) {
	dir := t.TempDir()
	blue, green := open(t, dir, Options{Cluster: "blue"}), open(t, dir, Options{Cluster: "green"})
	acquire(t, blue, 0)
	if r, _ := green.Load(t.Context()); r.Revision != 0 || r.PK != "cluster#green" {
		t.Errorf("got %+v", r)
	}
}

// TestKilledWritersLoseNothingAcknowledged kills processes that write as fast as they can and compares the record with the last
// write that each of them reported.
func TestKilledWritersLoseNothingAcknowledged(t *testing.T) {
	if dir := os.Getenv("EMBEDDED_WRITER"); dir != "" {
		s := open(t, dir, Options{SnapshotAt: 2000})
		for {
			r, err := s.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err = s.Apply(t.Context(), nodes.RenewLease{Owner: "w0", Fence: 1, Now: time.Unix(r.Revision, 0), TTL: 0})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("acknowledged %d\n", r.Revision)
		}
	}
	dir := t.TempDir()
	acquire(t, open(t, dir, Options{}), 0)
	for round := range 6 {
		var acked int64
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWritersLoseNothingAcknowledged$")
		cmd.Env = append(os.Environ(), "EMBEDDED_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 20 + 7*round {
			if _, err := fmt.Fscanf(out, "acknowledged %d\n", &acked); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Process.Kill()
		for { // what was written to the pipe before the kill counts as well
			if _, err := fmt.Fscanf(out, "acknowledged %d\n", &acked); err != nil {
				break
			}
		}
		_ = cmd.Wait()
		r, err := open(t, dir, Options{}).Load(t.Context())
		if err != nil || r.Revision < acked || r.Revision > acked+1 {
			t.Fatalf("round %d: %d was acknowledged, %d is there, %v", round, acked, r.Revision, err)
		}
	}
}

func TestExpiredInterruptionsAreForgottenAndOldJournalFilesRemoved(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	opts := Options{SnapshotAt: 1, SegmentAt: 1, Keep: time.Hour, Now: func() time.Time { return now }}
	s, j := open(t, dir, opts), openJournal(t, dir, opts)
	closing := nodes.InterruptionStep{Step: "close", Change: func(i *nodes.Interruption) { i.InstanceID, i.Closed, i.ExpiresEpoch = "i-1", true, now.Unix() }}
	if _, err := s.ApplyInterruption(t.Context(), "i-1", closing); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := j.Append(t.Context(), nodes.Event{At: start, Seq: n}); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(2 * time.Hour)
	acquire(t, s, 0)
	if err := j.Append(t.Context(), nodes.Event{At: start, Seq: 9}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.items[s.interruptionKey("i-1")]; ok {
		t.Error("the closed interruption is still there")
	}
	if files, _ := j.files(); len(files) != 3 {
		t.Errorf("%d journal files, want the new one and the two before it", len(files))
	}
}

// TestLargeEventsTakeLittleRoom appends a snapshot's kind of event, which says much the same a thousand times.
func TestLargeEventsTakeLittleRoom(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir, Options{})
	data := []byte(`["` + strings.Repeat(`{\"node\":\"ip-10-0-0-1\",\"ready\":true}`, 20_000) + `"]`)
	if err := j.Append(t.Context(), nodes.Event{At: start, Tick: "t", Data: data}); err != nil {
		t.Fatal(err)
	}
	files, err := j.files()
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Size() > int64(len(data)/20) {
		t.Errorf("%d bytes became %d, %v", len(data), info.Size(), err)
	}
	for e, err := range openJournal(t, dir, Options{}).Read(t.Context(), nodes.Query{}) {
		if err != nil || string(e.Data) != string(data) {
			t.Errorf("%d bytes came back of %d, %v", len(e.Data), len(data), err)
		}
	}
	noise := make([]byte, maxFrame+1<<20)          // base64 in JSON, which compresses back to this
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	raw, err := json.Marshal(noise)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), nodes.Event{At: start, Tick: "u", Data: raw}); err == nil || !strings.Contains(err.Error(), "the journal takes") {
		t.Errorf("an event that no frame holds: %v", err)
	}
}

func TestFilesThatEndedLongBeforeAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	j := openJournal(t, dir, Options{SegmentAt: 1})
	for n := range 5 { // a file each
		if err := j.Append(t.Context(), nodes.Event{At: start.Add(time.Duration(n) * 24 * time.Hour), Seq: n}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := j.files()
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for n, name := range files {
		at := start.Add(time.Duration(n) * 24 * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(files[0], []byte("damaged, which reading would notice"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(files[0], start, start); err != nil {
		t.Fatal(err)
	}
	read := func(since time.Time) (n int, err error) {
		for _, err := range j.Read(t.Context(), nodes.Query{Since: since}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if n, err := read(start.Add(36 * time.Hour)); n != 3 || err != nil {
		t.Errorf("the newest three: %d, %v", n, err)
	}
	if _, err := read(start.Add(30 * time.Minute)); err == nil {
		t.Error("a file that may hold the time asked for was left out")
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := Open(dir, Options{Cluster: "blue"})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	r, err := s.Apply(context.Background(), nodes.AcquireLease{Owner: "me", Now: time.Unix(1730000000, 0), TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.PK, r.LeaseOwner, r.LeaseFence)
	// Output: cluster#blue me 1
}

// TestAReconcilerKeepsItsStateHere lets the real reconciler scale a simulated cluster up and down with nothing but the directory kept
// between ticks: every tick opens it anew, as a process that was restarted would.
func TestAReconcilerKeepsItsStateHere(t *testing.T) {
	dir := t.TempDir()
	p := nodes.DefaultPolicy()
	p.IdleDownFor, p.CooldownDown = time.Minute, time.Minute
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}})
	c := w.Client("A", nil)
	tick := func() {
		s, j := open(t, dir, Options{SnapshotAt: 4000}), openJournal(t, dir, Options{})
		r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: s, Journal: j, Clock: w.Clock()})
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(time.Minute)
		if _, err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Close(), j.Close()
	}
	w.SetLoad(0.9)
	for range 8 {
		tick()
	}
	if f := w.Fleet(); f.Available != 3 {
		t.Errorf("after the load came %+v", f)
	}
	w.SetLoad(0.1)
	for range 5 {
		tick()
	}
	if f := w.Fleet(); f.Available != 2 || f.Alive != 2 {
		t.Errorf("after the load went %+v", f)
	}
	r, err := open(t, dir, Options{}).Load(t.Context())
	if err != nil || r.ScalingInProgress || r.LastScaleEpoch == 0 || len(r.Removals) > 0 {
		t.Errorf("at rest %+v, %v", r, err)
	}
}
