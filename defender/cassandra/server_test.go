package cassandra_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/tchart"
)

var chamber = defender.Chamber{Tool: "tool001", Name: "chamber1"}

// TestTheSameTracesGiveTheSameUChartsAsWithSQLite lets one chamber's wafers, good and faulty, go through T-chart, history, verdict and
// store on both stores, and compares everything that can be read.
func TestTheSameTracesGiveTheSameUChartsAsWithSQLite(t *testing.T) {
	lite, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "m.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	distributed := open(t, fresh(t, servers.Get(t, component.Cassandra())))
	const wafers = 40
	refs := make([]defender.ContextRef, wafers)
	for _, s := range []defender.Store{lite, distributed} {
		for i := range wafers {
			refs[i] = process(t, s, i)
		}
	}
	states := map[uchart.State]int{}
	for _, ref := range refs {
		a, errA := lite.UChart(t.Context(), ref.Chamber, ref.ID)
		b, errB := distributed.UChart(t.Context(), ref.Chamber, ref.ID)
		if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%s: %v, %v:\n%+v\n%+v", ref.ID, errA, errB, a, b)
		}
		states[a.Verdict.State]++
	}
	alarmsA, errA := lite.Alarms(t.Context(), defender.AlarmQuery{Limit: 100})
	alarmsB, errB := distributed.Alarms(t.Context(), defender.AlarmQuery{Limit: 100})
	if errA != nil || errB != nil || !reflect.DeepEqual(alarmsA, alarmsB) {
		t.Errorf("alarms %v, %v:\n%+v\n%+v", errA, errB, alarmsA, alarmsB)
	}
	if states[uchart.Alarm] == 0 || states[uchart.Normal] == 0 || states[uchart.Learning] == 0 {
		t.Errorf("states %v: this comparison shows too little", states)
	}
	t.Logf("%d wafers, states %v, %d alarms", wafers, states, len(alarmsA))
}

// process does what a worker does with a wafer.
func process(t *testing.T, s defender.Store, i int) defender.ContextRef {
	t.Helper()
	g := &trace.Generator{Seed: 7}
	w := g.Wafer(i)
	if i >= 30 && i%3 == 0 {
		var err error
		if w, err = g.FaultyWafer(i, trace.Faults()[i%len(trace.Faults())]); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 5 * time.Minute)
	ref := defender.ContextRef{Chamber: chamber, ID: fmt.Sprintf("wafer-%03d", i), Recipe: "etch", Start: end.Add(-time.Minute), End: end}
	blob, err := tchart.Encode(&w.Trace)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutTChart(t.Context(), ref.TChart(), blob, end.AddDate(0, 0, 7)); err != nil {
		t.Fatal(err)
	}
	stored, err := s.TChart(t.Context(), ref.TChart())
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := tchart.Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	chart, err := uchart.Compute(decoded)
	if err != nil {
		t.Fatal(err)
	}
	history, err := s.History(t.Context(), defender.HistoryQuery{Chamber: ref.Chamber, Recipe: ref.Recipe, Before: ref.Position(), Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	verdict := uchart.Judge(defender.Points(history), chart, uchart.Policy{})
	out, err := s.Commit(t.Context(), defender.Fence{MapVersion: 1, ClaimRevision: 1}, defender.NewResult(ref, chart, verdict, end.AddDate(1, 0, 0)))
	if err != nil || !out.Stored {
		t.Fatalf("%s: %+v, %v", ref.ID, out, err)
	}
	return ref
}

// TestAServerThatIsPausedAndKilledMidWriteLosesNothing lets writers store contexts, each again until it is acknowledged, while the server
// is stopped for longer than a request may take, goes on, is killed and comes back on its data.
func TestAServerThatIsPausedAndKilledMidWriteLosesNothing(t *testing.T) {
	server := servers.Get(t, component.Cassandra())
	c := fresh(t, server)
	c.Timeout = time.Second
	s := open(t, c)
	const writers = 4
	var acked [writers]atomic.Int64
	var failures atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	owner := func(w int) defender.Chamber { return defender.Chamber{Tool: "tool", Name: fmt.Sprint("c", w)} }
	progress := make(chan struct{}, 1)
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			for i := 0; ctx.Err() == nil; {
				r := storetest.NewResult(owner(w), "etch", i, []uchart.State{uchart.Normal, uchart.Alarm}[i%2])
				out, err := s.Commit(ctx, defender.Fence{MapVersion: 1, ClaimRevision: 1}, r)
				if err != nil {
					failures.Add(1)
					told(progress)
					rest(ctx)
					continue
				}
				if !out.Identical {
					t.Errorf("context %d of %s is stored with another result", i, owner(w))
				}
				i++
				acked[w].Store(int64(i))
				told(progress)
			}
		})
	}
	wait := func(what string, more int64) {
		t.Helper()
		for w := range writers {
			for target := acked[w].Load() + more; acked[w].Load() < target; {
				select {
				case <-progress:
				case <-time.After(3 * time.Minute):
					t.Fatalf("%s: writer %d stands still at %d", what, w, acked[w].Load())
				}
			}
		}
	}
	wait("at first", 20)
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for before := failures.Load(); failures.Load() < before+writers; { // until writers have met the pause
		<-progress
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait("after the pause", 20)
	server.Kill()
	before := failures.Load()
	server.Restart(t)
	wait("after the kill", 20)
	stop()
	g.Wait()
	if failures.Load() == before {
		t.Error("no write failed: the kill met nothing")
	}
	again := open(t, c)
	for w := range writers {
		found, err := again.UCharts(t.Context(), owner(w), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		// One more than acknowledged can be there: written when the test ended.
		if n := acked[w].Load(); int64(len(found)) < n || int64(len(found)) > n+1 {
			t.Errorf("%s: %d acknowledged, %d stored", owner(w), n, len(found))
		}
		for k, u := range found {
			i := len(found) - 1 - k
			want := storetest.NewResult(owner(w), "etch", i, []uchart.State{uchart.Normal, uchart.Alarm}[i%2]).UChart
			if !reflect.DeepEqual(u, want) {
				t.Errorf("%s, context %d is not what was written", owner(w), i)
			}
		}
		alarms, err := again.Alarms(t.Context(), defender.AlarmQuery{Chamber: owner(w), Limit: 1 << 20})
		if err != nil || len(alarms) != len(found)/2 {
			t.Errorf("%s: %d alarms for %d contexts, %v", owner(w), len(alarms), len(found), err)
		}
	}
	t.Logf("%d, %d, %d and %d contexts acknowledged, %d writes failed on the way", acked[0].Load(), acked[1].Load(), acked[2].Load(), acked[3].Load(), failures.Load())
}

// told makes the waiting goroutines look again.
func told(progress chan struct{}) {
	select {
	case progress <- struct{}{}:
	default:
	}
}

// rest keeps a writer from asking a server that is away as fast as it can.
func rest(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// TestAStaleFenceIsRefusedByTheServer holds a stale owner's write back on its way, after everything that a client can look at, and lets a
// successor raise the fence meanwhile.
func TestAStaleFenceIsRefusedByTheServer(t *testing.T) {
	server := servers.Get(t, component.Cassandra())
	c := fresh(t, server)
	successor := open(t, c)
	gate := newGate(t, server.Addr)
	slow := c
	slow.Hosts = []string{gate.addr}
	stale := open(t, slow)
	old, next := defender.Fence{MapVersion: 4, ClaimRevision: 1}, defender.Fence{MapVersion: 5, ClaimRevision: 1}
	if _, err := stale.Commit(t.Context(), old, storetest.NewResult(chamber, "etch", 1, uchart.Normal)); err != nil {
		t.Fatal(err)
	}
	gate.close()
	done := make(chan error)
	go func() {
		_, err := stale.Commit(t.Context(), old, storetest.NewResult(chamber, "etch", 2, uchart.Alarm))
		done <- err
	}()
	gate.waitHeld(t)
	if err := successor.RaiseFence(t.Context(), chamber, next); err != nil {
		t.Fatal(err)
	}
	gate.open()
	var fenced *defender.FencedError
	if err := <-done; !errors.As(err, &fenced) || fenced.Offered != old || fenced.Stored != next {
		t.Errorf("the stale write: %v", err)
	}
	found, err := successor.UCharts(t.Context(), chamber, 10)
	if err != nil || len(found) != 1 || found[0].Context.ID != "ctx-000001" {
		t.Errorf("stored are %d contexts, %v", len(found), err)
	}
	if alarms, err := successor.Alarms(t.Context(), defender.AlarmQuery{Limit: 10}); err != nil || len(alarms) != 0 {
		t.Errorf("alarms: %v, %v", alarms, err)
	}
}

// TestFencesRemoved follows docs/debug.md, "Fences are rejected": a fence that is
// older than the stored one is accepted again, and the rows stay.
func TestFencesRemoved(t *testing.T) {
	server := servers.Get(t, component.Cassandra())
	c := fresh(t, server)
	s := open(t, c)
	high, low := defender.Fence{MapVersion: 5, ClaimRevision: 3}, defender.Fence{MapVersion: 1, ClaimRevision: 1}
	if _, err := s.Commit(t.Context(), high, storetest.NewResult(chamber, "etch", 1, uchart.Normal)); err != nil {
		t.Fatal(err)
	}
	if err := s.RaiseFence(t.Context(), chamber, low); !errors.Is(err, defender.ErrFenced) {
		t.Fatalf("a lower fence: %v", err)
	}
	page, err := os.ReadFile("../../docs/debug.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`(UPDATE chamber_rows .+? WHERE chamber = )'.+?'( .+?)`").FindStringSubmatch(string(page))
	if found == nil {
		t.Fatal("docs/debug.md has no statement for Cassandra")
	}
	admin := gocql.NewCluster(server.Addr)
	admin.Keyspace, admin.Timeout = c.Keyspace, time.Minute
	session, err := admin.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var chambers []string
	rows := session.Query("SELECT DISTINCT chamber FROM chamber_rows").Iter()
	for name := ""; rows.Scan(&name); {
		chambers = append(chambers, name)
	}
	if err := rows.Close(); err != nil || len(chambers) != 1 || chambers[0] != chamber.String() {
		t.Fatalf("chambers %q, %v", chambers, err)
	}
	if applied, err := session.Query(found[1]+"?"+found[2], chambers[0]).MapScanCAS(map[string]any{}); err != nil || !applied {
		t.Fatalf("removing the fence: applied %v, %v", applied, err)
	}
	if err := s.RaiseFence(t.Context(), chamber, low); err != nil {
		t.Errorf("raising the fence from nothing: %v", err)
	}
	if _, err := s.Commit(t.Context(), low, storetest.NewResult(chamber, "etch", 2, uchart.Normal)); err != nil {
		t.Errorf("the first result after it: %v", err)
	}
	if stored, err := s.UCharts(t.Context(), chamber, 10); err != nil || len(stored) != 2 {
		t.Errorf("%d results are stored, %v", len(stored), err)
	}
}

// gate is a proxy that can hold back what clients send.
type gate struct {
	addr string
	mu   sync.Mutex
	free chan struct{} // closed while the gate is open
	held chan struct{} // gets something when a request is held back
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	g := &gate{addr: l.Addr().String(), held: make(chan struct{}, 1)}
	g.free = make(chan struct{})
	close(g.free)
	t.Cleanup(g.open)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(from, server); _ = from.Close() }()
			go func() { g.pass(server, from); _ = server.Close() }()
		}
	}()
	return g
}

func (g *gate) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		g.mu.Lock()
		free := g.free
		g.mu.Unlock()
		select {
		case <-free:
		default:
			select {
			case g.held <- struct{}{}:
			default:
			}
			<-free
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.free:
	default:
		close(g.free)
	}
}

func (g *gate) waitHeld(t *testing.T) {
	t.Helper()
	select {
	case <-g.held:
	case <-time.After(time.Minute):
		t.Fatal("nothing came through the gate: the client goes another way")
	}
}

// TestOpeningWithoutASchemaOrAServerSaysWhatToDo checks the messages.
func TestOpeningWithoutASchemaOrAServerSaysWhatToDo(t *testing.T) {
	server := servers.Get(t, component.Cassandra())
	half := fresh(t, server)
	admin := gocql.NewCluster(server.Addr)
	admin.Timeout = time.Minute
	session, err := admin.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.Query("DROP TABLE " + half.Keyspace + ".alarmed").ExecContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config   cassandra.Config
		noSchema bool
		want     string
	}{
		{cassandra.Config{Hosts: []string{server.Addr}, Keyspace: "not_there", Timeout: time.Minute}, true, "keyspace not_there"},
		{half, true, half.Keyspace + ".alarmed"},
		{cassandra.Config{Hosts: []string{"127.0.0.1:1"}, Keyspace: "muster", Timeout: time.Second}, false, "127.0.0.1:1"},
		{cassandra.Config{Hosts: []string{server.Addr}, Keyspace: "Drop Table"}, false, `"Drop Table"`},
		{cassandra.Config{Keyspace: "muster"}, false, "no Cassandra host"},
	} {
		s, err := cassandra.Open(t.Context(), c.config)
		if err == nil {
			_ = s.Close()
			t.Errorf("%+v opens", c.config)
		} else if errors.Is(err, cassandra.ErrNoSchema) != c.noSchema || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.config, err)
		}
	}
}
