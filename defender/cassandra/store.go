package cassandra

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// Config says where to store. Hosts and Keyspace are required.
type Config struct {
	Hosts      []string // host or host:port of some nodes; the others are found
	Keyspace   string   // lower-case letters, digits and underscores
	Datacenter string   // the local one, whose quorum counts; "" where there is only one
	Username   string
	Password   string
	TLS        *tls.Config   // nil for connections in the clear
	Timeout    time.Duration // of one request; by default 10 s
}

func (c Config) check() error {
	switch {
	case len(c.Hosts) == 0:
		return errors.New("no Cassandra host given")
	case !keyspaceName.MatchString(c.Keyspace):
		return fmt.Errorf("keyspace %q: use up to 48 lower-case letters, digits and underscores, beginning with a letter", c.Keyspace)
	}
	return nil
}

// connectTo opens a session in a keyspace, or in none if it is "".
func (c Config) connectTo(keyspace string) (*gocql.Session, error) {
	cluster := gocql.NewCluster(c.Hosts...)
	cluster.Keyspace = keyspace
	cluster.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	cluster.ConnectTimeout = cluster.Timeout
	cluster.WriteTimeout = cluster.Timeout
	cluster.Consistency = gocql.LocalQuorum
	cluster.SerialConsistency = gocql.LocalSerial
	local := gocql.RoundRobinHostPolicy()
	if c.Datacenter != "" {
		local = gocql.DCAwareRoundRobinPolicy(c.Datacenter)
	}
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(local)
	cluster.ReconnectionPolicy = &gocql.ExponentialReconnectionPolicy{MaxRetries: 1000, InitialInterval: 100 * time.Millisecond, MaxInterval: 10 * time.Second}
	if c.Username != "" {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: c.Username, Password: c.Password}
	}
	if c.TLS != nil {
		cluster.SslOpts = &gocql.SslOptions{Config: c.TLS, EnableHostVerification: !c.TLS.InsecureSkipVerify}
	}
	session, err := cluster.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connecting to Cassandra at %s: %w; see whether CASSANDRA_HOSTS are up and can be reached from here", strings.Join(c.Hosts, ", "), err)
	}
	return session, nil
}

// Store is a [defender.Store] on a keyspace.
type Store struct {
	session *gocql.Session

	mu      sync.RWMutex // held for reading by what is under way
	closed  bool
	known   sync.Mutex
	alarmed map[string]bool // chambers that this process has noted in table alarmed
}

var _ defender.Store = (*Store)(nil)

// ErrNoSchema says that the keyspace or one of its tables is not there: [CreateSchema] has not been called.
var ErrNoSchema = errors.New("the schema has not been created")

// Open connects to the keyspace, whose tables [CreateSchema] has created.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.checkKeyspace(ctx); err != nil {
		return nil, err
	}
	session, err := c.connectTo(c.Keyspace)
	if err != nil {
		return nil, err
	}
	for _, table := range []string{"tcharts", "chamber_rows", "chambers", "alarmed"} {
		err := session.Query("SELECT * FROM " + table + " LIMIT 1").ExecContext(ctx)
		if refused := gocql.RequestError(nil); errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid {
			err = ErrNoSchema
		}
		if err != nil {
			session.Close()
			return nil, fmt.Errorf("reading table %s.%s: %w", c.Keyspace, table, err)
		}
	}
	return &Store{session: session, alarmed: map[string]bool{}}, nil
}

// checkKeyspace reports whether the keyspace is there: a session in one that isn't fails without saying why.
func (c Config) checkKeyspace(ctx context.Context) error {
	session, err := c.connectTo("")
	if err != nil {
		return err
	}
	defer session.Close()
	var name string
	err = session.Query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", c.Keyspace).Consistency(gocql.LocalOne).ScanContext(ctx, &name)
	if errors.Is(err, gocql.ErrNotFound) {
		err = ErrNoSchema
	}
	if err != nil {
		return fmt.Errorf("looking for keyspace %s: %w", c.Keyspace, err)
	}
	return nil
}

// Close implements [defender.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.session.Close()
	}
	return nil
}

// begin keeps the store open until the returned function is called.
func (s *Store) begin(ctx context.Context) (end func(), err error) {
	s.mu.RLock()
	switch {
	case s.closed:
		err = defender.ErrClosed
	default:
		err = ctx.Err()
	}
	if err != nil {
		s.mu.RUnlock()
		return nil, err
	}
	return s.mu.RUnlock, nil
}

// ttl returns the seconds until expires, rounded up. What has expired already lives for a second: readers leave it out.
func ttl(expires time.Time) int {
	const most = 20 * 365 * 24 * time.Hour // Cassandra's limit
	left := min(max(time.Until(expires), time.Second), most)
	return int((left + time.Second - 1) / time.Second)
}

// PutTChart implements [defender.Store].
func (s *Store) PutTChart(ctx context.Context, key defender.TChartKey, blob []byte, expires time.Time) error {
	if err := key.Validate(); err != nil {
		return err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if blob == nil {
		blob = []byte{}
	}
	err = s.session.Query(`INSERT INTO tcharts (chamber, context, blob, expires_ns) VALUES (?, ?, ?, ?) USING TTL ?`,
		key.Chamber.String(), key.Context, blob, expires.UnixNano(), ttl(expires)).Idempotent(true).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("storing the T-chart %s: %w", key, err)
	}
	return nil
}

// TChart implements [defender.Store].
func (s *Store) TChart(ctx context.Context, key defender.TChartKey) ([]byte, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var blob []byte
	var expires int64
	err = s.session.Query(`SELECT blob, expires_ns FROM tcharts WHERE chamber = ? AND context = ?`, key.Chamber.String(), key.Context).
		Idempotent(true).ScanContext(ctx, &blob, &expires)
	if errors.Is(err, gocql.ErrNotFound) || err == nil && expired(expires) {
		err = defender.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading the T-chart %s: %w", key, err)
	}
	if blob == nil {
		blob = []byte{}
	}
	return blob, nil
}

func expired(ns int64) bool { return ns <= time.Now().UnixNano() }

// ---- fences

// written returns a fence as it is stored: text that sorts as fences do, so that the server can compare it.
func written(f defender.Fence) (string, error) {
	if f.MapVersion > math.MaxInt64 || f.ClaimRevision > math.MaxInt64 {
		return "", fmt.Errorf("fence %s is out of range", f)
	}
	return fmt.Sprintf("%019d.%019d", f.MapVersion, f.ClaimRevision), nil
}

func readFence(s string) (f defender.Fence, err error) {
	if _, err := fmt.Sscanf(s, "%d.%d", &f.MapVersion, &f.ClaimRevision); err != nil {
		return f, fmt.Errorf("stored fence %q can't be read: %w", s, err)
	}
	return f, nil
}

// storedFence reads a chamber's fence as of the last condition that was decided; known is false if it has none.
func (s *Store) storedFence(ctx context.Context, chamber string) (f defender.Fence, known bool, err error) {
	var text *string
	err = s.session.Query(`SELECT DISTINCT chamber, fence FROM chamber_rows WHERE chamber = ?`, chamber).
		Consistency(gocql.LocalSerial).Idempotent(true).ScanContext(ctx, new(string), &text)
	if errors.Is(err, gocql.ErrNotFound) || err == nil && text == nil {
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	f, err = readFence(*text)
	return f, true, err
}

// fenced makes a conditional write of a chamber's partition under a fence: rows adds what else is in it, with its own conditions.
// The server compares the fence and raises it. applied is false if a condition of rows did not hold; an older fence is a
// FencedError.
func (s *Store) fenced(ctx context.Context, chamber defender.Chamber, fence defender.Fence, rows func(*gocql.Batch)) (applied bool, err error) {
	offered, err := written(fence)
	if err != nil {
		return false, err
	}
	key := chamber.String()
	first := false // the chamber has no fence yet
	for try := 0; ; try++ {
		b := s.session.Batch(gocql.LoggedBatch)
		if first {
			b.Query(`UPDATE chamber_rows SET fence = ? WHERE chamber = ? IF fence = null`, offered, key)
		} else {
			b.Query(`UPDATE chamber_rows SET fence = ? WHERE chamber = ? IF fence <= ?`, offered, key, offered)
		}
		rows(b)
		applied, iter, err := b.MapExecCASContext(ctx, map[string]any{})
		if iter != nil {
			err = errors.Join(err, iter.Close())
		}
		if err != nil || applied {
			return applied, err
		}
		stored, known, err := s.storedFence(ctx, key)
		switch {
		case err != nil:
			return false, err
		case known && fence.Compare(stored) < 0:
			return false, &defender.FencedError{Chamber: chamber, Offered: fence, Stored: stored}
		case known != first: // the fence was compared as it is: what did not hold is a condition of rows
			return false, nil
		}
		first = !known
		if err := pause(ctx, try); err != nil {
			return false, err
		}
	}
}

// pause waits a moment after a lost race.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(rand.N(time.Millisecond << min(try, 7)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RaiseFence implements [defender.Store].
func (s *Store) RaiseFence(ctx context.Context, chamber defender.Chamber, fence defender.Fence) error {
	if err := chamber.Validate(); err != nil {
		return err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.raise(ctx, chamber, fence); err != nil {
		return fmt.Errorf("raising the fence of %s: %w", chamber, err)
	}
	return nil
}

// raise is fenced without rows: what keeps it from being applied is a race, until the fence is older.
func (s *Store) raise(ctx context.Context, chamber defender.Chamber, fence defender.Fence) error {
	for try := 0; ; try++ {
		applied, err := s.fenced(ctx, chamber, fence, func(*gocql.Batch) {})
		if err != nil || applied {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// ---- commits

// row is a context as it is stored.
type row struct {
	chamber, context, recipe, product, lot, wafer string
	start, end                                    int64
	chart                                         []byte
	verdict, alarmState, alarmReason              string
	expires                                       int64
}

const (
	rowColumns = `chamber, context, recipe, product, lot, wafer, start_ns, end_ns, chart, verdict, alarm_state, alarm_reason, expires_ns`
	refColumns = `chamber, context, of_recipe, product, lot, wafer, start_ns, end_ns, alarm_state, alarm_reason, expires_ns`
)

func (r *row) fields() []any {
	return []any{&r.chamber, &r.context, &r.recipe, &r.product, &r.lot, &r.wafer, &r.start, &r.end, &r.chart, &r.verdict, &r.alarmState, &r.alarmReason, &r.expires}
}

func (r *row) refFields() []any {
	return []any{&r.chamber, &r.context, &r.recipe, &r.product, &r.lot, &r.wafer, &r.start, &r.end, &r.alarmState, &r.alarmReason, &r.expires}
}

func newRow(r defender.Result) (*row, error) {
	c := r.UChart.Context
	chart, err := r.UChart.Chart.MarshalBinary()
	if err != nil {
		return nil, err
	}
	verdict, err := json.Marshal(r.UChart.Verdict)
	if err != nil {
		return nil, fmt.Errorf("encoding the verdict of %s: %w", c.ID, err)
	}
	out := &row{
		chamber: c.Chamber.String(), context: c.ID, recipe: c.Recipe, product: c.Product, lot: c.Lot, wafer: c.Wafer,
		start: c.Start.UnixNano(), end: c.End.UnixNano(), chart: chart, verdict: string(verdict), expires: r.Expires.UnixNano(),
	}
	if r.Alarm != nil {
		out.alarmState, out.alarmReason = r.Alarm.State.String(), r.Alarm.Reason
	}
	return out, nil
}

// equal compares all but the expiry.
func (r *row) equal(o *row) bool {
	a, b := *r, *o
	a.chart, b.chart, a.expires, b.expires = nil, nil, 0, 0
	return a.chamber == b.chamber && a.context == b.context && a.recipe == b.recipe && a.product == b.product && a.lot == b.lot &&
		a.wafer == b.wafer && a.start == b.start && a.end == b.end && a.verdict == b.verdict && a.alarmState == b.alarmState &&
		a.alarmReason == b.alarmReason && bytes.Equal(r.chart, o.chart)
}

// insert adds the context's rows, on the condition that it is not there.
func (r *row) insert(b *gocql.Batch) {
	life := ttl(time.Unix(0, r.expires))
	b.Query(`INSERT INTO chamber_rows (chamber, kind, recipe, end_ns, context, of_recipe, of_end_ns, expires_ns)
		VALUES (?, 'context', '', 0, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?`, r.chamber, r.context, r.recipe, r.end, r.expires, life)
	b.Query(`INSERT INTO chamber_rows (chamber, kind, recipe, end_ns, context, product, lot, wafer, start_ns, chart, verdict, alarm_state, alarm_reason, expires_ns)
		VALUES (?, 'uchart', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?`,
		r.chamber, r.recipe, r.end, r.context, r.product, r.lot, r.wafer, r.start, r.chart, r.verdict, r.alarmState, r.alarmReason, r.expires, life)
	b.Query(`INSERT INTO chamber_rows (chamber, kind, recipe, end_ns, context, of_recipe, expires_ns)
		VALUES (?, 'time', '', ?, ?, ?, ?) USING TTL ?`, r.chamber, r.end, r.context, r.recipe, r.expires, life)
	if r.alarmState != "" {
		b.Query(`INSERT INTO chamber_rows (chamber, kind, recipe, end_ns, context, of_recipe, product, lot, wafer, start_ns, alarm_state, alarm_reason, expires_ns)
			VALUES (?, 'alarm', '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?`,
			r.chamber, r.end, r.context, r.recipe, r.product, r.lot, r.wafer, r.start, r.alarmState, r.alarmReason, r.expires, life)
	}
}

// Commit implements [defender.Store]. A context that is new takes one round trip.
func (s *Store) Commit(ctx context.Context, fence defender.Fence, r defender.Result) (defender.CommitOutcome, error) {
	if err := r.Validate(); err != nil {
		return defender.CommitOutcome{}, err
	}
	offered, err := newRow(r)
	if err != nil {
		return defender.CommitOutcome{}, err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return defender.CommitOutcome{}, err
	}
	defer end()
	out, err := s.commit(ctx, r.UChart.Context.Chamber, fence, offered)
	if err != nil {
		return defender.CommitOutcome{}, fmt.Errorf("storing the result of %s, context %s: %w", offered.chamber, offered.context, err)
	}
	return out, nil
}

func (s *Store) commit(ctx context.Context, chamber defender.Chamber, fence defender.Fence, offered *row) (defender.CommitOutcome, error) {
	if offered.alarmState != "" { // before the alarm is there, so that nobody who lists alarms misses its chamber
		if err := s.noteAlarmed(ctx, offered.chamber); err != nil {
			return defender.CommitOutcome{}, err
		}
	}
	for try := 0; ; try++ {
		applied, err := s.fenced(ctx, chamber, fence, offered.insert)
		if err != nil || applied {
			return defender.CommitOutcome{Stored: applied, Identical: applied}, err
		}
		// It is there already. The fence is raised all the same.
		stored, err := s.context(ctx, offered.chamber, offered.context, gocql.LocalSerial)
		if err == nil {
			return defender.CommitOutcome{Identical: stored.equal(offered)}, s.raise(ctx, chamber, fence)
		}
		if !errors.Is(err, defender.ErrNotFound) {
			return defender.CommitOutcome{}, err
		}
		if err := pause(ctx, try); err != nil { // it has expired meanwhile, or the fence moved between
			return defender.CommitOutcome{}, err
		}
	}
}

func (s *Store) noteAlarmed(ctx context.Context, chamber string) error {
	s.known.Lock()
	noted := s.alarmed[chamber]
	s.known.Unlock()
	if noted {
		return nil
	}
	if err := s.session.Query(`INSERT INTO alarmed (bucket, chamber) VALUES (0, ?)`, chamber).Idempotent(true).ExecContext(ctx); err != nil {
		return err
	}
	s.known.Lock()
	defer s.known.Unlock()
	s.alarmed[chamber] = true
	return nil
}

// context reads the rows of one context.
func (s *Store) context(ctx context.Context, chamber, id string, c gocql.Consistency) (*row, error) {
	var recipe string
	var end, expires int64
	err := s.session.Query(`SELECT of_recipe, of_end_ns, expires_ns FROM chamber_rows
		WHERE chamber = ? AND kind = 'context' AND recipe = '' AND end_ns = 0 AND context = ?`, chamber, id).
		Consistency(c).Idempotent(true).ScanContext(ctx, &recipe, &end, &expires)
	if err == nil && expired(expires) {
		err = gocql.ErrNotFound
	}
	if err == nil {
		return s.uchart(ctx, chamber, recipe, end, id, c)
	}
	if errors.Is(err, gocql.ErrNotFound) {
		err = defender.ErrNotFound
	}
	return nil, err
}

func (s *Store) uchart(ctx context.Context, chamber, recipe string, end int64, id string, c gocql.Consistency) (*row, error) {
	var r row
	err := s.session.Query(`SELECT `+rowColumns+` FROM chamber_rows
		WHERE chamber = ? AND kind = 'uchart' AND recipe = ? AND end_ns = ? AND context = ?`, chamber, recipe, end, id).
		Consistency(c).Idempotent(true).ScanContext(ctx, r.fields()...)
	if errors.Is(err, gocql.ErrNotFound) {
		err = defender.ErrNotFound
	}
	return &r, err
}

// ---- chambers

// RegisterChambers implements [defender.Store].
func (s *Store) RegisterChambers(ctx context.Context, chambers []defender.ChamberInfo) error {
	for _, c := range chambers {
		if err := c.Chamber.Validate(); err != nil {
			return fmt.Errorf("registering %s: %w", c.Chamber, err)
		}
		if c.Weight < 1 {
			return fmt.Errorf("registering %s: weight %d is less than 1", c.Chamber, c.Weight)
		}
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for part := range slices.Chunk(chambers, 100) { // one partition: a batch is one write
		b := s.session.Batch(gocql.UnloggedBatch)
		for _, c := range part {
			b.Query(`INSERT INTO chambers (bucket, tool, name, weight) VALUES (0, ?, ?, ?)`, c.Chamber.Tool, c.Chamber.Name, c.Weight)
		}
		if err := b.ExecContext(ctx); err != nil {
			return fmt.Errorf("registering chambers: %w", err)
		}
	}
	return nil
}

// Chambers implements [defender.Store].
func (s *Store) Chambers(ctx context.Context) ([]defender.ChamberInfo, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var out []defender.ChamberInfo
	err = s.each(ctx, `SELECT tool, name, weight FROM chambers WHERE bucket = 0`, nil, func(scan func(...any) bool) (bool, error) {
		var c defender.ChamberInfo
		ok := scan(&c.Chamber.Tool, &c.Chamber.Name, &c.Weight)
		if ok {
			out = append(out, c)
		}
		return ok, nil
	})
	return out, err
}

// DeleteExpired implements [defender.Store]: Cassandra does it by itself.
func (s *Store) DeleteExpired(ctx context.Context, _ time.Time) (int, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return 0, err
	}
	end()
	return 0, nil
}

// ---- reading

// each calls f with every row of a query until it returns false.
func (s *Store) each(ctx context.Context, query string, args []any, f func(scan func(...any) bool) (bool, error)) error {
	iter := s.session.Query(query, args...).Idempotent(true).IterContext(ctx)
	for {
		ok, err := f(iter.Scan)
		if err != nil {
			return errors.Join(err, iter.Close())
		}
		if !ok {
			return iter.Close()
		}
	}
}

// History implements [defender.Store].
func (s *Store) History(ctx context.Context, q defender.HistoryQuery) ([]defender.UChart, error) {
	if q.Limit <= 0 || q.Before.End.IsZero() {
		return nil, ctx.Err()
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var out []defender.UChart
	err = s.each(ctx, `SELECT `+rowColumns+` FROM chamber_rows WHERE chamber = ? AND kind = 'uchart' AND recipe = ? AND (end_ns, context) < (?, ?) LIMIT ?`,
		[]any{q.Chamber.String(), q.Recipe, q.Before.End.UnixNano(), q.Before.Context, q.Limit}, func(scan func(...any) bool) (bool, error) {
			var r row
			if !scan(r.fields()...) {
				return false, nil
			}
			if expired(r.expires) {
				return true, nil
			}
			u, err := r.decode()
			out = append(out, u)
			return true, err
		})
	if err != nil {
		return nil, fmt.Errorf("reading the history of %s: %w", q.Chamber, err)
	}
	slices.Reverse(out)
	return out, nil
}

// UChart implements [defender.Store].
func (s *Store) UChart(ctx context.Context, chamber defender.Chamber, contextID string) (defender.UChart, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return defender.UChart{}, err
	}
	defer end()
	r, err := s.context(ctx, chamber.String(), contextID, gocql.LocalQuorum)
	if err == nil {
		return r.decode()
	}
	return defender.UChart{}, fmt.Errorf("reading the U-chart of %s, context %s: %w", chamber, contextID, err)
}

// UCharts implements [defender.Store].
func (s *Store) UCharts(ctx context.Context, chamber defender.Chamber, limit int) ([]defender.UChart, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var rows []row
	err = s.each(ctx, `SELECT recipe, end_ns, context, of_recipe, expires_ns FROM chamber_rows WHERE chamber = ? AND kind = 'time' AND recipe = '' LIMIT ?`,
		[]any{chamber.String(), limit}, func(scan func(...any) bool) (bool, error) {
			var r row
			ok := scan(new(string), &r.end, &r.context, &r.recipe, &r.expires)
			if ok && !expired(r.expires) {
				rows = append(rows, r)
			}
			return ok, nil
		})
	if err != nil {
		return nil, fmt.Errorf("reading the U-charts of %s: %w", chamber, err)
	}
	var out []defender.UChart
	for _, at := range rows {
		r, err := s.uchart(ctx, chamber.String(), at.recipe, at.end, at.context, gocql.LocalQuorum)
		if errors.Is(err, defender.ErrNotFound) { // expired between
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the U-charts of %s: %w", chamber, err)
		}
		u, err := r.decode()
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// Alarms implements [defender.Store]. Those of all chambers are merged from the newest of each chamber that has had one.
func (s *Store) Alarms(ctx context.Context, q defender.AlarmQuery) ([]defender.Alarm, error) {
	if q.Limit <= 0 {
		return nil, ctx.Err()
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	chambers := []string{q.Chamber.String()}
	if q.Chamber == (defender.Chamber{}) {
		if chambers, err = s.listAlarmed(ctx); err != nil {
			return nil, fmt.Errorf("reading alarms: %w", err)
		}
	}
	var mu sync.Mutex
	var out []defender.Alarm
	err = parallel(chambers, func(chamber string) error {
		found, err := s.alarmsOf(ctx, chamber, q)
		mu.Lock()
		defer mu.Unlock()
		out = append(out, found...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading alarms: %w", err)
	}
	slices.SortFunc(out, func(a, b defender.Alarm) int {
		return cmp.Or(b.Context.End.Compare(a.Context.End), cmp.Compare(b.Context.ID, a.Context.ID), cmp.Compare(b.Context.Chamber.String(), a.Context.Chamber.String()))
	})
	return out[:min(len(out), q.Limit)], nil
}

func (s *Store) listAlarmed(ctx context.Context) (out []string, err error) {
	err = s.each(ctx, `SELECT chamber FROM alarmed WHERE bucket = 0`, nil, func(scan func(...any) bool) (bool, error) {
		var c string
		ok := scan(&c)
		if ok {
			out = append(out, c)
		}
		return ok, nil
	})
	return out, err
}

func (s *Store) alarmsOf(ctx context.Context, chamber string, q defender.AlarmQuery) (out []defender.Alarm, err error) {
	since := int64(0)
	if !q.Since.IsZero() {
		since = q.Since.UnixNano()
	}
	err = s.each(ctx, `SELECT `+refColumns+` FROM chamber_rows WHERE chamber = ? AND kind = 'alarm' AND recipe = '' AND end_ns >= ? LIMIT ?`,
		[]any{chamber, since, q.Limit}, func(scan func(...any) bool) (bool, error) {
			var r row
			if !scan(r.refFields()...) {
				return false, nil
			}
			if expired(r.expires) {
				return true, nil
			}
			ref, err := r.ref()
			if err != nil {
				return false, err
			}
			var state uchart.State
			if err := state.UnmarshalText([]byte(r.alarmState)); err != nil {
				return false, err
			}
			out = append(out, defender.Alarm{Context: ref, State: state, Reason: r.alarmReason})
			return true, nil
		})
	return out, err
}

// parallel calls f for each key, some at a time, and returns their errors.
func parallel(keys []string, f func(string) error) error {
	const most = 32
	var mu sync.Mutex
	errs := map[string]error{}
	var g sync.WaitGroup
	slots := make(chan struct{}, most)
	for _, k := range keys {
		slots <- struct{}{}
		g.Go(func() {
			defer func() { <-slots }()
			if err := f(k); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[k] = err
			}
		})
	}
	g.Wait()
	return errors.Join(slices.Collect(maps.Values(errs))...)
}

func unixTime(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func (r *row) ref() (defender.ContextRef, error) {
	chamber, err := defender.ParseChamber(r.chamber)
	return defender.ContextRef{
		Chamber: chamber, ID: r.context, Recipe: r.recipe, Product: r.product, Lot: r.lot, Wafer: r.wafer,
		Start: unixTime(r.start), End: unixTime(r.end),
	}, err
}

func (r *row) decode() (defender.UChart, error) {
	ref, err := r.ref()
	if err != nil {
		return defender.UChart{}, err
	}
	u := defender.UChart{Context: ref, Chart: new(uchart.Chart)}
	if err := u.Chart.UnmarshalBinary(r.chart); err != nil {
		return defender.UChart{}, fmt.Errorf("context %s of %s: %w", r.context, r.chamber, err)
	}
	if err := json.Unmarshal([]byte(r.verdict), &u.Verdict); err != nil {
		return defender.UChart{}, fmt.Errorf("context %s of %s: reading the verdict, %w", r.context, r.chamber, err)
	}
	return u, nil
}

var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
