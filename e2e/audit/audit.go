package audit

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // the driver of the results' database
)

// Config says where the evidence is.
type Config struct {
	Streams []string // of the messages; a group with several numbers them in this order
	Dead    string   // stream of the dead letters
	Letters string   // subject of the dead letters
	Results string   // SQLite file of the results
	Records string   // directory of the records of processing, one file a process
	// InMemory keeps the copies of messages in the servers' memory, where they take none
	// of the storage that the run is about.
	InMemory bool
}

// number is what a message is known by: its sequence in its stream, times the
// number of streams, plus the stream's place among them.
func (c Config) number(stream string, inStream uint64) (uint64, error) {
	at := slices.Index(c.Streams, stream)
	if at < 0 {
		return 0, fmt.Errorf("stream %q is none of %q", stream, c.Streams)
	}
	return inStream*uint64(len(c.Streams)) + uint64(at), nil
}

// Auditor collects evidence during a run.
type Auditor struct {
	c  Config
	js jetstream.JetStream
	db *sql.DB
}

const (
	captureStream  = "audit"
	captureSubject = "audit."
)

// Begin has the broker copy what the streams take from now on, and the database
// note each change of a result. Nothing may have been published or stored.
func Begin(ctx context.Context, nc *nats.Conn, c Config) (*Auditor, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("beginning the audit: %w", err)
	}
	a := &Auditor{c: c, js: js}
	for _, stream := range c.Streams {
		if err := a.capture(ctx, stream); err != nil {
			return nil, fmt.Errorf("beginning the audit of stream %s: %w", stream, err)
		}
	}
	if err := a.watchResults(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("beginning the audit of %s: %w", c.Results, err), a.Close())
	}
	return a, nil
}

// Close ends the audit.
func (a *Auditor) Close() error {
	if a.db == nil {
		return nil
	}
	return a.db.Close()
}

func (a *Auditor) capture(ctx context.Context, stream string) error {
	s, err := a.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	of := s.CachedInfo().Config
	// The copies carry the messages' IDs; a copy of a message that was taken a
	// second time is wanted, too.
	storage := jetstream.FileStorage
	if a.c.InMemory {
		storage = jetstream.MemoryStorage
	}
	if _, err := a.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: captureStream, Subjects: []string{captureSubject + ">"},
		Storage: storage, Replicas: of.Replicas, Duplicates: 100 * time.Millisecond}); err != nil {
		return err
	}
	of.RePublish = &jetstream.RePublish{Source: ">", Destination: captureSubject + ">"}
	_, err = a.js.UpdateStream(ctx, of)
	return err
}

// Every result, as the transaction that wrote it saw it: the chamber's fence is
// then the writer's.
const eventLog = `
CREATE TABLE IF NOT EXISTS audit_effects (
	n       INTEGER PRIMARY KEY AUTOINCREMENT,
	kind    TEXT NOT NULL,
	at_ms   INTEGER NOT NULL,
	chamber TEXT NOT NULL,
	context TEXT NOT NULL,
	version INTEGER NOT NULL,
	claim   INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS audit_stored AFTER INSERT ON ucharts BEGIN
	INSERT INTO audit_effects (kind, at_ms, chamber, context, version, claim)
	SELECT 'stored', CAST(unixepoch('subsec') * 1000 AS INTEGER), NEW.chamber, NEW.context,
		coalesce((SELECT map_version FROM fences WHERE chamber = NEW.chamber), 0),
		coalesce((SELECT claim_revision FROM fences WHERE chamber = NEW.chamber), 0);
END;
CREATE TRIGGER IF NOT EXISTS audit_changed AFTER UPDATE ON ucharts BEGIN
	INSERT INTO audit_effects (kind, at_ms, chamber, context, version, claim)
	VALUES ('changed', CAST(unixepoch('subsec') * 1000 AS INTEGER), NEW.chamber, NEW.context, 0, 0);
END;
CREATE TRIGGER IF NOT EXISTS audit_deleted AFTER DELETE ON ucharts BEGIN
	INSERT INTO audit_effects (kind, at_ms, chamber, context, version, claim)
	VALUES ('deleted', CAST(unixepoch('subsec') * 1000 AS INTEGER), OLD.chamber, OLD.context, 0, 0);
END;`

func (a *Auditor) watchResults(ctx context.Context) error {
	dsn := url.URL{Scheme: "file", Opaque: url.PathEscape(a.c.Results), RawQuery: url.Values{"_pragma": {"busy_timeout(10000)"}}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return err
	}
	a.db = db
	_, err = db.ExecContext(ctx, eventLog)
	return err
}

// Account tells what became of every message: of those that the broker copied,
// those that it acknowledged to the publisher, and any others that were
// processed. deaths gives, by record file, when a killed process was gone.
func (a *Auditor) Account(ctx context.Context, published []Published, deaths map[string]time.Time, freezes []Freeze) (Account, error) {
	e, err := a.gather(ctx)
	if err != nil {
		return Account{}, err
	}
	e.published, e.deaths, e.freezes = published, deaths, freezes
	if e.captured, err = a.captured(ctx); err != nil {
		return Account{}, fmt.Errorf("reading the copies of the messages: %w", err)
	}
	return account(e), nil
}

// gather reads the evidence of any run.
func (a *Auditor) gather(ctx context.Context) (e evidence, err error) {
	if e.dead, err = a.dead(ctx); err != nil {
		return e, fmt.Errorf("reading the dead letters: %w", err)
	}
	for _, stream := range a.c.Streams {
		s, err := a.js.Stream(ctx, stream)
		if err != nil {
			return e, fmt.Errorf("reading stream %s: %w", stream, err)
		}
		state := s.CachedInfo().State
		e.last, e.left = append(e.last, state.LastSeq), e.left+state.Msgs
	}
	if e.effects, err = a.effects(ctx); err != nil {
		return e, fmt.Errorf("reading the results of %s: %w", a.c.Results, err)
	}
	files, err := filepath.Glob(filepath.Join(a.c.Records, "*"))
	if err != nil {
		return e, err
	}
	for _, f := range files {
		runs, _, err := readRecord(f)
		if err != nil {
			return e, fmt.Errorf("reading what was processed: %w", err)
		}
		e.runs = append(e.runs, runs...)
	}
	return e, nil
}

// readTries is how often a stream is asked again that delivers nothing, as one
// does whose servers have just elected a leader.
const readTries = 60

// each calls f for every message of a stream, in order.
func (a *Auditor) each(ctx context.Context, stream string, f func(jetstream.Msg) error) error {
	s, err := a.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	last := s.CachedInfo().State.LastSeq
	for next, tries := max(s.CachedInfo().State.FirstSeq, 1), 0; next <= last; {
		before := next
		err := a.some(ctx, s, &next, last, f)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case next > before:
			tries = 0
		case tries == readTries:
			return errors.Join(fmt.Errorf("messages from %d of %d of stream %s are not delivered", next, last, stream), err)
		default:
			tries++
			time.Sleep(500 * time.Millisecond)
		}
	}
	return nil
}

// some reads messages from next to last, and moves next on.
func (a *Auditor) some(ctx context.Context, s jetstream.Stream, next *uint64, last uint64, f func(jetstream.Msg) error) error {
	c, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next})
	if err != nil {
		return err
	}
	for *next <= last {
		batch, err := c.Fetch(int(min(last-*next+1, 1000)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return err
		}
		got := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if meta.Sequence.Stream < *next {
				continue
			}
			if err := f(m); err != nil {
				return err
			}
			*next = meta.Sequence.Stream + 1
			got++
		}
		if got == 0 {
			return batch.Error()
		}
	}
	return nil
}

func (a *Auditor) captured(ctx context.Context) ([]Published, error) {
	var all []Published
	err := a.each(ctx, captureStream, func(m jetstream.Msg) error {
		p := Published{}
		inStream, err := strconv.ParseUint(m.Headers().Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return fmt.Errorf("a copy on %s has no sequence: %w", m.Subject(), err)
		}
		if p.Sequence, err = a.c.number(m.Headers().Get(jetstream.StreamHeader), inStream); err != nil {
			return fmt.Errorf("a copy on %s: %w", m.Subject(), err)
		}
		var v struct{ Tool, Chamber, Context string }
		if err := json.Unmarshal(m.Data(), &v); err != nil {
			return fmt.Errorf("message %d is not JSON: %w", p.Sequence, err)
		}
		p.Key, p.Context = v.Tool+":"+v.Chamber, v.Context
		all = append(all, p)
		return nil
	})
	return all, err
}

// dead returns the sequences of the messages that were dead-lettered, and when.
func (a *Auditor) dead(ctx context.Context) (map[uint64][]time.Time, error) {
	all := map[uint64][]time.Time{}
	err := a.each(ctx, a.c.Dead, func(m jetstream.Msg) error {
		seq, err := deadOf(m.Headers())
		if err != nil {
			return fmt.Errorf("a dead letter on %s does not name its message: %w", m.Subject(), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		all[seq] = append(all[seq], meta.Timestamp)
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return all, nil // it was lost, and made again only when one is needed
	}
	return all, err
}

// deadOf returns the sequence of the message that a dead letter is of.
func deadOf(h nats.Header) (uint64, error) {
	return strconv.ParseUint(h.Get("Muster-Sequence"), 10, 64)
}

func (a *Auditor) effects(ctx context.Context) (effects []effect, err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT kind, at_ms, chamber, context, version, claim FROM audit_effects ORDER BY n`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e effect
		var ms int64
		if err := rows.Scan(&e.kind, &ms, &e.key, &e.context, &e.version, &e.claim); err != nil {
			return nil, err
		}
		e.at = time.UnixMilli(ms)
		effects = append(effects, e)
	}
	return effects, rows.Err()
}

// readRecord reads the record of one process: a line when the processing of a message or a call
// begins, and one when it ends. What is cut off by a kill is left out.
func readRecord(path string) (runs, calls []run, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	messages, served := newSpans(), newSpans()
	s := bufio.NewScanner(f)
	for s.Scan() {
		w := strings.Fields(s.Text())
		if len(w) < 7 {
			continue
		}
		ns, err1 := strconv.ParseInt(w[1], 10, 64)
		number, err2 := strconv.ParseUint(w[3], 10, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		switch at := time.Unix(0, ns); w[0] {
		case "s":
			r := messageOf(w)
			r.record, r.seq, r.start = path, number, at
			messages.begin(number, r)
		case "e":
			messages.end(number, at, w[6] == "true")
		case "c":
			r := run{record: path, call: number, key: w[4], start: at}
			r.slot, r.version, r.claim = whole(w[5]), count(w, 7), count(w, 8)
			served.begin(number, r)
		case "d":
			served.end(number, at, w[6] == "true")
		}
	}
	return messages.all, served.all, s.Err()
}

// messageOf reads what a line says of a message. Versions before have no fence there.
func messageOf(w []string) run {
	r := run{key: w[4], slot: whole(w[5]), version: count(w, 10), claim: count(w, 11)}
	if len(w) >= 10 {
		r.stored, r.context = int64(count(w, 8)), w[9]
	}
	return r
}

// count returns a word as a number, 0 if it is none.
func count(w []string, at int) uint64 {
	if at >= len(w) {
		return 0
	}
	n, _ := strconv.ParseUint(w[at], 10, 64)
	return n
}

func whole(w string) int {
	n, _ := strconv.Atoi(w)
	return n
}

// spans are the runs of one process, by what they are known by.
type spans struct {
	all  []run
	open map[uint64]int
}

func newSpans() *spans { return &spans{open: map[uint64]int{}} }

func (s *spans) begin(number uint64, r run) {
	s.open[number] = len(s.all)
	s.all = append(s.all, r)
}

func (s *spans) end(number uint64, at time.Time, ok bool) {
	if i, begun := s.open[number]; begun {
		s.all[i].end, s.all[i].ok = at, ok
		delete(s.open, number)
	}
}
