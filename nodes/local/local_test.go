package local

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/storetest"
)

var start = time.Unix(1730000000, 0)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := t.TempDir()
		return func(t *testing.T) (nodes.Store, nodes.EventLog) {
			s := open(t, dir, Options{})
			return s, s
		}
	})
}

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, s *Store, n int) nodes.Record {
	t.Helper()
	r, err := s.Apply(t.Context(), nodes.AcquireLease{
		Owner: fmt.Sprint("w", n), Now: start.Add(time.Duration(n) * time.Hour), TTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func revision(t *testing.T, dir string) int64 {
	t.Helper()
	s := open(t, dir, Options{})
	defer closeStore(t, s)
	r, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

func TestACommitWaitsForTheDisk(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var mode string
	var synchronous int
	err := s.writer.conn.QueryRowContext(t.Context(), `SELECT
		(SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous)`).
		Scan(&mode, &synchronous)
	if err != nil {
		t.Fatal(err)
	}
	const full = 2
	if mode != "wal" || synchronous != full {
		t.Errorf("journal mode %s, synchronous %d, want wal and %d", mode, synchronous, full)
	}
}

// logged is a directory whose log holds four writes. The file itself holds none: nothing has moved them there
// yet.
type logged struct {
	file, log []byte
	ends      []int // of the writes in the log
}

func newLogged(t *testing.T) logged {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, Options{})
	closeStore(t, s) // moves the tables into the file
	s = open(t, dir, Options{})

	var l logged
	var err error
	for n := range 4 {
		acquire(t, s, n)
		if l.log, err = os.ReadFile(s.path + "-wal"); err != nil {
			t.Fatal(err)
		}
		l.ends = append(l.ends, len(l.log))
	}
	if l.file, err = os.ReadFile(s.path); err != nil {
		t.Fatal(err)
	}
	return l
}

// after writes a directory as it is when only this much of the log has reached the disk.
func (l logged) after(t *testing.T, log []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, fileName), l.file)
	write(t, filepath.Join(dir, fileName+"-wal"), log)
	return dir
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAnyCutOfTheLogLosesOnlyWhatWasNotAcknowledged cuts the log as a crash may: around the end of every
// write and at many places between. It compares what is read with the writes that were whole.
func TestAnyCutOfTheLogLosesOnlyWhatWasNotAcknowledged(t *testing.T) {
	l := newLogged(t)
	nearEnd := func(cut int) bool {
		for _, end := range l.ends {
			if cut >= end-2 && cut <= end+2 {
				return true
			}
		}
		return false
	}
	step := 211
	if testing.Short() {
		step = 2 * step
	}
	for cut := range len(l.log) + 1 {
		if cut%step != 0 && !nearEnd(cut) {
			continue
		}
		want := int64(0)
		for _, end := range l.ends {
			if cut >= end {
				want++
			}
		}
		for _, filler := range [][]byte{nil, make([]byte, 13)} { // cut off, or extended with zeros that never got their data
			dir := l.after(t, append(bytes.Clone(l.log[:cut]), filler...))

			s := open(t, dir, Options{})
			r, err := s.Load(t.Context())
			if err != nil || r.Revision != want {
				t.Fatalf("cut at byte %d of %d: revision %d, want %d, %v", cut, len(l.log), r.Revision, want, err)
			}
			if got := acquire(t, s, 9); got.Revision != want+1 {
				t.Fatalf("cut at byte %d: the next write has revision %d", cut, got.Revision)
			}
			if got := revision(t, dir); got != want+1 {
				t.Fatalf("cut at byte %d: after the next write revision %d, want %d", cut, got, want+1)
			}
			closeStore(t, s)
		}
	}
}

// TestKilledWritersLoseNothingAcknowledged kills processes that write as fast as they can and compares the
// record with the last write that each of them reported.
func TestKilledWritersLoseNothingAcknowledged(t *testing.T) {
	if dir := os.Getenv("LOCAL_WRITER"); dir != "" {
		writeUntilKilled(t, dir)
	}
	dir := t.TempDir()
	closeStore(t, firstLease(t, dir))
	for round := range 6 {
		acknowledged := killedWriter(t, dir, 20+7*round)
		if got := revision(t, dir); got < acknowledged || got > acknowledged+1 {
			t.Fatalf("round %d: %d was acknowledged, %d is there", round, acknowledged, got)
		}
	}
}

// TestAPowerCutLosesNothingAcknowledged does the same to the disk: what was not synced is gone from it, or a
// part of that is kept.
func TestAPowerCutLosesNothingAcknowledged(t *testing.T) {
	component.Need(t, powercut.Supported())
	rack, err := powercut.New(1, powercut.OrderedData)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rack.Close(); err != nil {
			t.Error(err)
		}
	})

	dir := filepath.Join(rack.Dir(0), "nodes")
	closeStore(t, firstLease(t, dir))
	if err := rack.Sync(0); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	keeps := []powercut.Keep{powercut.KeepNothing, powercut.KeepPrefix, powercut.KeepTorn, powercut.KeepNothing}
	for round, keep := range keeps {
		acknowledged := killedWriter(t, dir, 20+50*round)
		if err := rack.CutKeeping(keep, rng, 0); err != nil {
			t.Fatal(err)
		}
		if got := revision(t, dir); got < acknowledged || got > acknowledged+1 {
			t.Fatalf("round %d, %v: %d was acknowledged, %d is there", round, keep, acknowledged, got)
		}
	}
}

func firstLease(t *testing.T, dir string) *Store {
	t.Helper()
	s := open(t, dir, Options{})
	acquire(t, s, 0)
	return s
}

// writeUntilKilled is the writing process.
func writeUntilKilled(t *testing.T, dir string) {
	s := open(t, dir, Options{})
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

// killedWriter starts a process that writes, kills it after some writes, and returns the last revision that
// it reported.
func killedWriter(t *testing.T, dir string, writes int) (acknowledged int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWritersLoseNothingAcknowledged$")
	cmd.Env = append(os.Environ(), "LOCAL_WRITER="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for range writes {
		if _, err := fmt.Fscanf(out, "acknowledged %d\n", &acknowledged); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Process.Kill()
	for { // what was written to the pipe before the kill counts as well
		if _, err := fmt.Fscanf(out, "acknowledged %d\n", &acknowledged); err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return acknowledged
}

// TestDamageIsReportedWithTheFileAndTheFix damages what was acknowledged, in ways that a crash doesn't.
func TestDamageIsReportedWithTheFileAndTheFix(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(content []byte) []byte
		want   []string
	}{
		"a letter of the record": {
			func(c []byte) []byte {
				return bytes.Replace(c, []byte(`"leaseOwner":"w0"`), []byte(`"leaseOwner":"w8"`), 1)
			},
			[]string{fileName, "the record cluster is damaged", "restore the file from a backup, or move it away"},
		},
		"a page": {
			func(c []byte) []byte { clear(c[4096:8192]); return c },
			[]string{fileName, "the file is damaged", "restore it from a copy, or move it away"},
		},
		"the beginning": {
			func(c []byte) []byte { clear(c[:100]); return c },
			[]string{fileName, "not a SQLite database", "choose another path, or move the file away"},
		},
		"the end is cut off": {
			func(c []byte) []byte { return c[:4096] },
			[]string{fileName, "the file is damaged", "restore it from a copy, or move it away"},
		},
		"the content of another format": {
			func([]byte) []byte { return bytes.Repeat([]byte("\x20\x00\x00\x00abcd{\"key\":\"cluster\"}"), 300) },
			[]string{fileName, "not a SQLite database", "choose another path, or move the file away"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			acquire(t, s, 0)
			closeStore(t, s)
			content, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := test.damage(bytes.Clone(content))
			if bytes.Equal(damaged, content) {
				t.Fatal("nothing was damaged")
			}
			write(t, s.path, damaged)

			_, err = Open(t.Context(), dir, Options{})
			if err == nil {
				t.Fatal("opened, want an error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestADamagedEventIsReportedAndNotSkipped(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for n := range 3 {
		if err := s.Append(t.Context(), nodes.Event{At: start, Tick: "t", Seq: n, Message: "hello"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.writer.conn.ExecContext(t.Context(),
		`UPDATE events SET content = CAST(replace(content, 'hello', 'hollo') AS BLOB) WHERE id = 2`); err != nil {
		t.Fatal(err)
	}

	read := 0
	var last error
	for _, err := range s.Read(t.Context(), nodes.Query{}) {
		read++
		last = err
	}
	var damage *CorruptError
	if !errors.As(last, &damage) || damage.File != s.path || read != 2 {
		t.Errorf("%d were read, and the last is %v, want a *CorruptError after the first", read, last)
	}
}

// TestTheFormatBeforeIsRefused gives the store what each file of the former format is called.
func TestTheFormatBeforeIsRefused(t *testing.T) {
	for _, name := range []string{"state.snap", "state-0.log", "state-12.log", "journal-000001.log"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, name), []byte("frames"))
			if !Holds(dir) {
				t.Error("the directory seems to hold no store")
			}

			_, err := Open(t.Context(), dir, Options{})
			want := filepath.Join(dir, name) + " is of the format before SQLite, " +
				"which was never released and is not read: move it and the files beside it away, " +
				"or set DIR to another directory, to begin a new record"
			if err == nil || err.Error() != want {
				t.Errorf("error is %v, want %q", err, want)
			}
			if _, err := os.Stat(filepath.Join(dir, fileName)); err == nil {
				t.Error("a new file was made beside it")
			}
		})
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	for name, test := range map[string]struct{ statement, want string }{
		"another program's": {
			`CREATE TABLE songs (title TEXT)`, "something else than the node plane's record and event log",
		},
		"a newer schema": {
			fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = 99`, schema.Application), "version 99",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := sql.Open("sqlite", filepath.Join(dir, fileName))
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.ExecContext(t.Context(), test.statement)
			if err = errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(t.Context(), dir, Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestALockedFileIsWaitedForUntilTheContextEnds has another handle in a transaction, as another process that
// writes is.
func TestALockedFileIsWaitedForUntilTheContextEnds(t *testing.T) {
	dir := t.TempDir()
	s := firstLease(t, dir)
	other := open(t, dir, Options{})
	if _, err := other.writer.conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}

	// On a busy machine it takes a while to find the lock held; only then is the holder named.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Apply(ctx, nodes.PauseScaling{Now: start, By: "alice"})
	const holder = ": another process holds its lock"
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.path+holder) {
		t.Errorf("error is %v, want DeadlineExceeded and who holds what", err)
	}
	if r, err := s.Load(t.Context()); err != nil || r.Revision != 1 {
		t.Errorf("reading meanwhile: revision %d, %v", r.Revision, err)
	}
	if got := revision(t, dir); got != 1 { // opening does not wait
		t.Errorf("the write that was given up is there, revision %d", got)
	}

	time.AfterFunc(50*time.Millisecond, func() { other.writer.rollback(context.Background()) })
	if r, err := s.Apply(t.Context(), nodes.PauseScaling{Now: start, By: "alice"}); err != nil || r.Revision != 2 {
		t.Errorf("once the lock is free: revision %d, %v", r.Revision, err)
	}
}

// TestCancelledWritesLeaveNoTransactionOpen ends contexts at every moment of a write, while another handle
// writes, too.
func TestCancelledWritesLeaveNoTransactionOpen(t *testing.T) {
	dir := t.TempDir()
	s, other := firstLease(t, dir), open(t, dir, Options{})
	var wg sync.WaitGroup
	for n := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*20*time.Microsecond)
		wg.Go(func() {
			defer cancel()
			_, _ = s.Apply(ctx, renewal(time.Duration(n)*time.Second))
		})
		if n%10 == 0 {
			wg.Wait()
		}
	}
	wg.Wait()

	before, err := other.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n, h := range []*Store{other, s} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := h.Apply(ctx, renewal(time.Duration(1+n)*24*time.Hour))
		if want := before.Revision + int64(1+n); err != nil || r.Revision != want {
			t.Errorf("handle %d: revision %d, want %d, %v", n, r.Revision, want, err)
		}
	}
}

// renewal renews the lease of firstLease at a time after start.
func renewal(after time.Duration) nodes.RenewLease {
	return nodes.RenewLease{Owner: "w0", Fence: 1, Now: start.Add(after), TTL: time.Hour}
}

func TestClustersShareADirectory(t *testing.T) {
	dir := t.TempDir()
	blue, green := open(t, dir, Options{Cluster: "blue"}), open(t, dir, Options{Cluster: "green"})
	acquire(t, blue, 0)
	e := nodes.InterruptionEvent{ID: "e", Kind: nodes.Rebalance, InstanceID: "i-1", At: start}
	if _, err := blue.ApplyInterruption(t.Context(), "i-1", nodes.OpenInterruption{Event: e, Now: start}); err != nil {
		t.Fatal(err)
	}
	if r, _ := green.Load(t.Context()); r.Revision != 0 || r.PK != "cluster#green" {
		t.Errorf("got %+v", r)
	}
	if list, err := green.OpenInterruptions(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestOnlyTheOwnerMayReadTheFile(t *testing.T) {
	dir := t.TempDir()
	s := firstLease(t, dir)
	for _, path := range []string{s.path, s.path + "-wal"} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".muster-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestExpiredInterruptionsAndEventsAreRemoved(t *testing.T) {
	now := time.Now()
	s := open(t, t.TempDir(), Options{Keep: time.Hour, Now: func() time.Time { return now }})
	closing := nodes.InterruptionStep{Step: "close", Change: func(i *nodes.Interruption) {
		i.InstanceID, i.Closed, i.ExpiresEpoch = "i-1", true, now.Unix()
	}}
	if _, err := s.ApplyInterruption(t.Context(), "i-1", closing); err != nil {
		t.Fatal(err)
	}
	add := func(seq int) {
		if err := s.Append(t.Context(), nodes.Event{At: start, Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 4 {
		add(n)
	}
	now = now.Add(30 * time.Minute)
	add(4)
	if items, events := s.rows(t); items != 1 || events != 5 {
		t.Errorf("%d items and %d events before their time, want 1 and 5", items, events)
	}

	now = now.Add(45 * time.Minute)
	acquire(t, s, 0)
	add(9)
	if items, events := s.rows(t); items != 1 || events != 2 {
		t.Errorf("%d items and %d events, want the record alone and the two newest", items, events)
	}
}

// rows counts what is in the file.
func (s *Store) rows(t *testing.T) (items, events int) {
	t.Helper()
	err := s.reader.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM items), (SELECT count(*) FROM events)`).
		Scan(&items, &events)
	if err != nil {
		t.Fatal(err)
	}
	return items, events
}

// TestLargeEventsTakeLittleRoom appends a snapshot's kind of event, which says much the same a thousand
// times.
func TestLargeEventsTakeLittleRoom(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	data := []byte(`["` + strings.Repeat(`{\"node\":\"ip-10-0-0-1\",\"ready\":true}`, 20_000) + `"]`)
	if err := s.Append(t.Context(), nodes.Event{At: start, Tick: "t", Data: data}); err != nil {
		t.Fatal(err)
	}
	var size int
	err := s.reader.QueryRowContext(t.Context(), `SELECT length(content) FROM events`).Scan(&size)
	if err != nil || size > len(data)/20 {
		t.Errorf("%d bytes became %d, %v", len(data), size, err)
	}
	for e, err := range open(t, dir, Options{}).Read(t.Context(), nodes.Query{}) {
		if err != nil || string(e.Data) != string(data) {
			t.Errorf("%d bytes came back of %d, %v", len(e.Data), len(data), err)
		}
	}

	noise := make([]byte, maxContent+1<<20)        // base64 in JSON, which compresses back to this
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	raw, err := json.Marshal(noise)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Append(t.Context(), nodes.Event{At: start, Tick: "u", Data: raw})
	if err == nil || !strings.Contains(err.Error(), "the event log takes") {
		t.Errorf("an event that is too large: %v", err)
	}
}

// TestAReaderMayAppend appends while it reads, which a reader that held the only connection could not.
func TestAReaderMayAppend(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for n := range 3 {
		if err := s.Append(t.Context(), nodes.Event{At: start, Tick: "t", Seq: n}); err != nil {
			t.Fatal(err)
		}
	}
	read := 0
	for e, err := range s.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), nodes.Event{At: start, Tick: "u", Seq: e.Seq}); err != nil {
			t.Fatal(err)
		}
		read++
	}
	if read != 3 {
		t.Errorf("%d events were read, want the 3 that were there at the beginning", read)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	s, err := Open(ctx, dir, Options{Cluster: "blue"})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	r, err := s.Apply(ctx, nodes.AcquireLease{Owner: "me", Now: time.Unix(1730000000, 0), TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	fmt.Println(r.PK, r.LeaseOwner, r.LeaseFence)
	// Output: cluster#blue me 1
}

// TestAReconcilerKeepsItsStateHere lets the real reconciler scale a simulated cluster up and down with
// nothing but the directory kept between ticks: every tick opens it again, as a process that was restarted
// would.
func TestAReconcilerKeepsItsStateHere(t *testing.T) {
	dir := t.TempDir()
	p := nodes.DefaultPolicy()
	p.IdleDownFor, p.CooldownDown = time.Minute, time.Minute
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}})
	c := w.Client("A", nil)
	tick := func() {
		s := open(t, dir, Options{})
		r, err := nodes.New(nodes.Config{
			Policy: p, Signals: c, Cloud: c, Cluster: c, Store: s, EventLog: s, Clock: w.Clock(),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(time.Minute)
		if _, err := r.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
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
