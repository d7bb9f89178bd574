package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed web
var web embed.FS

// Options say what a console shows. Whatever is nil is not shown.
type Options struct {
	Title string // of the installation, for the page's head
	// Nodes and Workers return each plane as it is now. They are called while somebody looks: at once after
	// Changed, at most 25 times a second, and once every Refresh otherwise, never two at a time.
	Nodes   func(context.Context) (NodePlane, error)
	Workers func(context.Context) (WorkerPlane, error)
	// Chambers lists chambers whose name contains a text, at most limit of them; Charts returns one's charts.
	Chambers func(ctx context.Context, contains string, limit int) ([]ChamberInfo, error)
	Charts   func(ctx context.Context, tool, chamber string) (Charts, error)
	// Alarms counts the alarms of all chambers. It is called as Nodes and Workers are.
	Alarms func(context.Context) (AlarmCount, error)
	// Load measures how messages come and go. It is called every Sample, default 5 s, also while nobody looks.
	Load   func(context.Context) (Load, error)
	Sample time.Duration
	Lookups

	// Sources returns whether what the console reads can be read. It is called as Nodes and Workers are, after them.
	Sources func() []Source

	// Token allows actions to a client that sends it; "": the console is read-only. It is for a console that everybody may read.
	Token string
	// Users says who may read and who may act; nil: everybody may read, and who sends Token may act.
	Users *Users
	// Peers are the consoles of the other groups, and this one's own entry among them.
	Peers []Peer
	// Record is told of each command that was carried out, before the person is answered; its error fails the command's answer. nil:
	// nothing is told.
	Record func(Done) error
	// Act carries a command out; required with Token, and with Users of whom one may act. Its error is shown to the person;
	// ErrUnknownCommand and ErrUnknownTarget say that what was asked for is wrong, ErrDoneAlready that it is so already, everything else that it failed.
	Act func(context.Context, Command) error

	Refresh time.Duration // how often a plane is read that tells of no changes; default 2 s
	Keep    int           // moments kept for the timeline; default 200,000
	// Hosts are the names and addresses, beside those of loopback, by which the page may be asked for. A request for another
	// host is refused: a foreign page could otherwise read this one by pointing its own name here (DNS rebinding).
	Hosts []string
}

// Peer is another console that the page links to.
type Peer struct {
	Title   string `json:"title"`
	Address string `json:"address"` // relative to the page's
	Here    bool   `json:"here,omitempty"`
}

// Done is a command that was carried out.
type Done struct {
	At time.Time `json:"at"`
	Command
}

// Errors of a console's options and commands.
var (
	errNoAct          = errors.New("console: somebody may act, but there is nothing that carries commands out")
	ErrUnknownCommand = errors.New("unknown command")
	ErrUnknownTarget  = errors.New("no such target")
	ErrDoneAlready    = errors.New("somebody was first")
)

const (
	settle      = 40 * time.Millisecond // between two readings: what changes meanwhile is shown together
	readTimeout = 5 * time.Second
	actTimeout  = 20 * time.Second
	keepAlive   = 15 * time.Second
	keptMoves   = 10_000
	maxBacklog  = 1024 // moments that a slow page may be behind before it has to ask again
)

// Console serves the page. It is made by New.
type Console struct {
	o    Options
	mux  *http.ServeMux
	page http.Handler // mux, compressed
	wake chan struct{}

	reading sync.Mutex // held while the planes are read: one reading after the other, and none overtakes a later one
	judge   assessor   // guarded by reading

	mu      sync.Mutex
	moments ring[Moment]
	moves   ring[SlotMove]
	loads   ring[Load]
	drains  map[string]Request // by worker: who asked on this console to drain it
	seen    readout
	version uint64 // grows with everything that the pages are told but moments, which have numbers of their own
	told    uint64 // the number of the next move when the pages were last woken
	pages   map[*page]struct{}
	dirty   bool
}

// readout holds the newest frames of what is read, as JSON; nil for what is not shown.
type readout struct {
	nodes, workers, alarms, health, load, sources []byte
}

func (f readout) equal(g readout) bool {
	return bytes.Equal(f.nodes, g.nodes) && bytes.Equal(f.workers, g.workers) && bytes.Equal(f.alarms, g.alarms) && bytes.Equal(f.health, g.health) && bytes.Equal(f.load, g.load) && bytes.Equal(f.sources, g.sources)
}

// write adds the frames that differ from those that a page has.
func (f readout) write(out *bytes.Buffer, version uint64, has readout) {
	for _, x := range []struct {
		name     string
		now, was []byte
	}{{"nodes", f.nodes, has.nodes}, {"workers", f.workers, has.workers}, {"alarms", f.alarms, has.alarms}, {"health", f.health, has.health}, {"load", f.load, has.load}, {"sources", f.sources, has.sources}} {
		if !bytes.Equal(x.now, x.was) {
			frame(out, version, x.name, x.now)
		}
	}
}

// page is one browser that looks.
type page struct {
	wake   chan struct{}
	behind []Moment
	gap    bool // it missed some and has to ask for them
}

// New returns a console.
func New(o Options) (*Console, error) {
	if o.Act == nil && (o.Token != "" || o.Users != nil && o.Users.HasOperator()) {
		return nil, errNoAct
	}
	o.Refresh = cmp.Or(o.Refresh, 2*time.Second)
	o.Keep = cmp.Or(o.Keep, 200_000)
	o.Sample = cmp.Or(o.Sample, 5*time.Second)
	o.Title = cmp.Or(o.Title, "Muster")
	c := &Console{o: o, wake: make(chan struct{}, 1), pages: map[*page]struct{}{}, drains: map[string]Request{}}
	c.moments.limit, c.moves.limit, c.loads.limit = o.Keep, keptMoves, loadKept(o.Sample)
	static, err := fs.Sub(web, "web")
	if err != nil {
		return nil, fmt.Errorf("console: reading the page: %w", err)
	}
	c.mux = http.NewServeMux()
	c.mux.Handle("GET /", http.FileServerFS(static))
	c.mux.HandleFunc("GET /api/state", c.guarded(c.getState))
	c.mux.HandleFunc("GET /api/stream", c.guarded(c.getStream))
	c.mux.HandleFunc("GET /api/events", c.guarded(c.getEvents))
	c.mux.HandleFunc("GET /api/chambers", c.guarded(c.getChambers))
	c.mux.HandleFunc("GET /api/chambers/{tool}/{chamber}", c.guarded(c.getCharts))
	c.mux.HandleFunc("GET /api/moves", c.guarded(c.getMoves))
	c.mux.HandleFunc("GET /api/load", c.guarded(c.getLoad))
	c.mux.HandleFunc("GET /api/keys/{key}", c.guarded(c.getKey))
	c.mux.HandleFunc("GET /api/slots/{slot}", c.guarded(c.getSlot))
	c.mux.HandleFunc("GET /api/alarms", c.guarded(c.getAlarms))
	c.mux.HandleFunc("GET /api/runs/{tool}/{chamber}/{run}", c.guarded(c.getRun))
	c.mux.HandleFunc("GET /api/dead-letters", c.guarded(c.getDeadLetters))
	c.mux.HandleFunc("GET /api/preview", c.guarded(c.getPreview))
	c.mux.HandleFunc("POST /api/commands", c.postCommand)
	c.mux.HandleFunc("POST /api/session", c.postSession)
	c.mux.HandleFunc("DELETE /api/session", c.deleteSession)
	c.page = compressed(c.mux)
	return c, nil
}

// ServeHTTP serves the page and its API.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.allowed(r.Host) {
		problem(w, http.StatusForbidden, "host %q is not served here: ask by IP address on this machine, or name the host in the console's settings", r.Host)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	c.page.ServeHTTP(w, r)
}

func (c *Console) allowed(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if name == "localhost" {
		return true
	}
	if ip := net.ParseIP(name); ip != nil { // an address can't be rebound
		return true
	}
	return slices.Contains(c.o.Hosts, name)
}

// Say adds a moment to the timeline and shows it at once. Seq is set by the console, At to now if it is zero.
func (c *Console) Say(m Moment) {
	if m.At.IsZero() {
		m.At = time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Seq = c.moments.next
	c.moments.add(m)
	for p := range c.pages {
		if len(p.behind) >= maxBacklog {
			p.behind, p.gap = nil, true
		}
		if !p.gap {
			p.behind = append(p.behind, m)
		}
		signal(p.wake)
	}
}

// Recall puts moments that happened before into the timeline, in the order of their times. The pages load it again.
func (c *Console) Recall(before []Moment) {
	if len(before) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(c.moments.last(c.moments.limit), before...)
	slices.SortStableFunc(all, func(a, b Moment) int { return a.At.Compare(b.At) })
	c.moments = ring[Moment]{limit: c.moments.limit}
	for _, m := range all {
		m.Seq = c.moments.next
		c.moments.add(m)
	}
	for p := range c.pages {
		p.behind, p.gap = nil, true
		signal(p.wake)
	}
}

// SlotMoved adds a finished handoff or takeover to those that the console lists.
func (c *Console) SlotMoved(m SlotMove) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Seq = c.moves.next
	c.moves.add(m)
	c.version++
	c.dirty = true
	signal(c.wake)
}

// Changed tells that a plane looks different now. The pages show it at once if nothing changed just before, else within 40 ms; reading
// it comes on top.
func (c *Console) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty = true
	signal(c.wake)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run reads the planes while somebody looks, and measures the load, until ctx ends.
func (c *Console) Run(ctx context.Context) {
	if c.o.Load != nil {
		var sampling sync.WaitGroup
		defer sampling.Wait()
		sampling.Go(func() { c.sample(ctx) }) // beside the planes: neither waits for a slow other
	}
	t := time.NewTicker(c.o.Refresh)
	defer t.Stop()
	var last time.Time // when the planes were read
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			// The first change after a quiet time is shown at once. Those that follow it closely wait for each other.
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle - time.Since(last)):
			}
			select {
			case <-c.wake: // changes while it waited, which the reading below has
			default:
			}
		case <-t.C:
		}
		c.mu.Lock()
		watched := len(c.pages) > 0
		c.dirty = false
		c.mu.Unlock()
		if watched {
			c.refresh(ctx)
			last = time.Now()
		}
	}
}

// refresh reads everything and hands what has changed to the pages.
func (c *Console) refresh(ctx context.Context) {
	c.reading.Lock()
	defer c.reading.Unlock()
	f := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	f.load = c.seen.load // measured by itself
	// A takeover may end without the planes looking any different from the last reading.
	if f.equal(c.seen) && c.moves.next == c.told {
		return
	}
	c.seen, c.told = f, c.moves.next
	c.version++
	for p := range c.pages {
		signal(p.wake)
	}
}

func (c *Console) read(ctx context.Context) (f readout) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var s sight
	if c.o.Nodes != nil {
		v, err := c.o.Nodes(ctx)
		if err != nil {
			v.Error = err.Error()
		}
		s.nodes, f.nodes = &v, encode(v)
	}
	if c.o.Workers != nil {
		v, err := c.o.Workers(ctx)
		if err != nil {
			v.Error = err.Error()
		}
		c.addRequests(&v)
		s.workers, f.workers = &v, encode(v)
	}
	if c.o.Alarms != nil {
		v, err := c.o.Alarms(ctx)
		if err != nil {
			v.Error = err.Error()
		}
		s.alarms, f.alarms = &v, encode(v)
	}
	if c.o.Sources != nil {
		s.sources = c.o.Sources()
		f.sources = encode(s.sources)
	}
	f.health = encode(c.judge.assess(time.Now(), s))
	return f
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a number that is not finite, say
		b, _ = json.Marshal(map[string]string{"error": "can't be shown: " + err.Error()})
	}
	return b
}

// state is everything that a page shows at first.
type state struct {
	Title   string          `json:"title"`
	Now     time.Time       `json:"now"`
	Actions bool            `json:"actions"`
	Charts  bool            `json:"charts"`
	Nodes   json.RawMessage `json:"nodes,omitempty"`
	Workers json.RawMessage `json:"workers,omitempty"`
	Alarms  json.RawMessage `json:"alarms,omitempty"`
	Health  json.RawMessage `json:"health"`
	Sources json.RawMessage `json:"sources,omitempty"`
	User    *Person         `json:"user,omitempty"` // who asks; nil on a console for everybody
	Peers   []Peer          `json:"peers,omitempty"`
	Load    json.RawMessage `json:"load,omitempty"`
	Lookups []string        `json:"lookups"` // what can be looked up
	Moves   []SlotMove      `json:"moves"`
	Events  []Moment        `json:"events"`
	Next    uint64          `json:"next"` // sequence number that the next moment will have
	// Version is what the frames of the stream are compared with: those with this number, or a lower one, tell nothing new.
	Version uint64 `json:"version"`
}

func (c *Console) getState(w http.ResponseWriter, r *http.Request) {
	// All pages show what is read here. A browser that goes away meanwhile must not leave them an error.
	c.refresh(context.WithoutCancel(r.Context()))
	who := c.identify(r)
	c.mu.Lock()
	s := state{Title: c.o.Title, Now: time.Now(), Actions: who.acts, Peers: c.o.Peers, Sources: c.seen.sources, Charts: c.o.Charts != nil, Nodes: c.seen.nodes, Workers: c.seen.workers,
		Alarms: c.seen.alarms, Health: c.seen.health, Load: c.seen.load, Lookups: c.o.lookupNames(), Moves: c.moves.last(50), Events: c.moments.last(200), Next: c.moments.next, Version: c.version}
	c.mu.Unlock()
	if c.o.Users != nil {
		s.User = &who.Person
	}
	reply(w, s)
}

// getStream sends what changes as server-sent events: "nodes", "workers", "alarms", "health", "load", "sources", "moves", "events", and
// "gap" when the page has to ask for the timeline again. The ID of each frame is the version of the state that it is of. Moments begin
// with the number from, or with the next one.
func (c *Console) getStream(w http.ResponseWriter, r *http.Request) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		problem(w, http.StatusInternalServerError, "this server can't stream")
		return
	}
	from, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("from"), strconv.FormatUint(1<<63, 10)), 10, 64)
	if err != nil {
		problem(w, http.StatusBadRequest, "from is %q: give the sequence number of the next event", r.URL.Query().Get("from"))
		return
	}
	p := &page{wake: make(chan struct{}, 1)}
	c.mu.Lock()
	p.behind = c.moments.since(from, maxBacklog)
	p.gap = len(p.behind) > 0 && p.behind[0].Seq > from
	c.pages[p] = struct{}{}
	moved := c.moves.next
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pages, p)
		c.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	signal(p.wake)
	signal(c.wake)
	var has readout
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	for {
		var out bytes.Buffer
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
			out.WriteString(": still here\n\n")
		case <-p.wake:
			c.mu.Lock()
			behind, gap := p.behind, p.gap
			p.behind, p.gap = nil, false
			seen, version := c.seen, c.version
			var moves []SlotMove
			if c.moves.next > moved {
				moves = c.moves.since(moved, 200)
				moved = c.moves.next
			}
			c.mu.Unlock()
			if gap {
				frame(&out, version, "gap", []byte("{}"))
			} else if len(behind) > 0 {
				frame(&out, version, "events", encode(behind))
			}
			if len(moves) > 0 {
				frame(&out, version, "moves", encode(moves))
			}
			seen.write(&out, version, has)
			has = seen
		}
		if out.Len() == 0 {
			continue
		}
		if _, err := w.Write(out.Bytes()); err != nil {
			return
		}
		flusher.Flush()
	}
}

func frame(out *bytes.Buffer, version uint64, event string, data []byte) {
	fmt.Fprintf(out, "id: %d\nevent: %s\ndata: %s\n\n", version, event, data)
}

func (c *Console) getChambers(w http.ResponseWriter, r *http.Request) {
	if c.o.Chambers == nil {
		problem(w, http.StatusNotFound, "this console shows no chambers")
		return
	}
	list, err := c.o.Chambers(r.Context(), r.URL.Query().Get("contains"), 50)
	if err != nil {
		problem(w, http.StatusBadGateway, "listing chambers: %v", err)
		return
	}
	reply(w, list)
}

func (c *Console) getCharts(w http.ResponseWriter, r *http.Request) {
	if c.o.Charts == nil {
		problem(w, http.StatusNotFound, "this console shows no charts")
		return
	}
	v, err := c.o.Charts(r.Context(), r.PathValue("tool"), r.PathValue("chamber"))
	if err != nil {
		problem(w, http.StatusBadGateway, "reading the charts of %s:%s: %v", r.PathValue("tool"), r.PathValue("chamber"), err)
		return
	}
	reply(w, v)
}

// postCommand carries out what a person asks for.
func (c *Console) postCommand(w http.ResponseWriter, r *http.Request) {
	by, refused, err := c.authorize(r)
	if err != nil {
		problem(w, refused, "%v", err)
		return
	}
	var cmd Command
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096))
	d.DisallowUnknownFields()
	if err := d.Decode(&cmd); err != nil {
		problem(w, http.StatusBadRequest, "reading the command: %v", err)
		return
	}
	cmd.Reason, cmd.By = strings.TrimSpace(cmd.Reason), cmp.Or(by, strings.TrimSpace(cmd.By))
	if err := cmd.check(); err != nil {
		problem(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
	defer cancel()
	what, why := strings.TrimSpace(cmd.Name+" "+cmd.Target), cmd.Reason
	if cmd.By != "" {
		why += " (" + cmd.By + ")"
	}
	if err := c.o.Act(ctx, cmd); err != nil {
		c.Say(Moment{Plane: "console", Kind: "command.failed", Subject: cmd.Target, Level: "bad", Text: fmt.Sprintf("%s failed: %v; asked for because: %s", what, err, why)})
		problem(w, statusOf(err), "%s: %v", what, err)
		return
	}
	done := Done{At: time.Now().UTC(), Command: cmd}
	if c.o.Record != nil {
		if err := c.o.Record(done); err != nil {
			problem(w, http.StatusInternalServerError, "%s is done, but could not be recorded: %v", what, err)
			return
		}
	}
	c.Replay(done)
	c.Changed()
	reply(w, map[string]bool{"ok": true})
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknownCommand):
		return http.StatusBadRequest
	case errors.Is(err, ErrUnknownTarget):
		return http.StatusNotFound
	case errors.Is(err, ErrDoneAlready):
		return http.StatusConflict
	}
	return http.StatusBadGateway
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(encode(v))
}

func problem(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(map[string]string{"error": fmt.Sprintf(format, args...)}))
}

// Replay puts a command that was carried out into the timeline, and remembers who asked to drain a worker: one of just now, or of a
// console before this one.
func (c *Console) Replay(d Done) {
	text := strings.TrimSpace(d.Name+" "+d.Target) + ": " + d.Reason
	if d.By != "" {
		text += " (" + d.By + ")"
	}
	c.Say(Moment{At: d.At, Plane: "console", Kind: "command", Subject: d.Target, Text: text})
	c.mu.Lock()
	defer c.mu.Unlock()
	switch d.Name {
	case DrainWorker:
		c.drains[d.Target] = Request{At: d.At, By: d.By, Reason: d.Reason}
	case UndrainWorker:
		delete(c.drains, d.Target)
	}
}

// addRequests says of drained workers who asked for it, and forgets the others: their drain is over.
func (c *Console) addRequests(v *WorkerPlane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drained := map[string]bool{}
	list := slices.Clone(v.Workers) // the plane's own list stays as it is
	for i := range list {
		w := &list[i]
		r, asked := c.drains[w.ID]
		if !asked {
			continue
		}
		// The worker's own word of it may come a moment later.
		drained[w.ID] = !w.Drained.IsZero() || time.Since(r.At) < drainNoticed
		if !w.Drained.IsZero() {
			w.DrainedBy = &r
		}
	}
	v.Workers = list
	for id := range c.drains {
		if !drained[id] {
			delete(c.drains, id)
		}
	}
}

// drainNoticed is how long a worker may take to say that it drains.
const drainNoticed = time.Minute
