package gem

import (
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender/secs"
)

// forever is how many samples a trace has: 68 years of ten a second.
const forever = math.MaxInt32

// collection is what equipment is asked to send for one chamber. The IDs of report and
// trace follow from what is in them: data that was spooled under another plan has other IDs
// and is not mistaken.
type collection struct {
	plan      Chamber
	report    uint32
	trace     uint32
	reportIDs []uint32 // the clock, then the identity
	traceIDs  []uint32
	fields    []int // of the report's variables after the clock: their place in event.identity
	zone      *time.Location
}

func newCollection(t *Type, c Chamber) collection {
	k := collection{plan: c, reportIDs: []uint32{t.SVIDs[t.Clock]}, zone: t.zone}
	for i, alias := range c.identity() {
		if alias != "" {
			k.reportIDs = append(k.reportIDs, t.SVIDs[alias])
			k.fields = append(k.fields, i)
		}
	}
	for _, alias := range c.traced() {
		k.traceIDs = append(k.traceIDs, t.SVIDs[alias])
	}
	k.report = digest("report", c.Start, c.End, k.fields, k.reportIDs)
	k.trace = digest("trace", c.Start, c.End, c.Period, c.Group, k.traceIDs)
	return k
}

// digest returns an ID for what it stands for; of 31 bits, since some equipment has signed ones.
func digest(parts ...any) uint32 {
	return crc32.ChecksumIEEE([]byte(fmt.Sprint(parts...)))&math.MaxInt32 | 1
}

func uints(ids []uint32) secs.Item {
	list := secs.L()
	for _, id := range ids {
		list.Items = append(list.Items, secs.Uint(id))
	}
	return list
}

// idOf returns the ID that an item holds; 0, which is never asked for, if it holds none.
func idOf(i secs.Item) uint32 {
	if n, ok := i.Int(0); ok && n > 0 && n <= math.MaxUint32 {
		return uint32(n)
	}
	return 0
}

// startTrace returns the message that starts the trace.
func (k *collection) startTrace() secs.Message {
	return secs.New(2, 23, secs.L(secs.Uint(k.trace), secs.A(samplePeriod(time.Duration(k.plan.Period))),
		secs.Uint(forever), secs.Uint(k.plan.Group), uints(k.traceIDs)))
}

// readEvent reads the report that belongs to a chamber's event.
func (k *collection) readEvent(starts bool, values secs.Item) (event, error) {
	if values.Len() != len(k.reportIDs) {
		return event{}, fmt.Errorf("its report has %d values, and %d were asked for", values.Len(), len(k.reportIDs))
	}
	clock, _ := values.Items[0].Text()
	at, err := parseClock(clock, k.zone)
	if err != nil {
		return event{}, err
	}
	e := event{starts: starts, at: at}
	for i, field := range k.fields {
		text, ok := values.Items[1+i].Text()
		if !ok && values.Items[1+i].Len() > 0 {
			return event{}, fmt.Errorf("its report has %v for variable %d, which is neither text nor a number", values.Items[1+i], k.reportIDs[1+i])
		}
		e.identity[field] = strings.ToValidUTF8(text, "_")
	}
	return e, nil
}

// readTrace reads samples of the chamber's trace.
func (k *collection) readTrace(number, stime, values secs.Item) (message, error) {
	n, ok := number.Int(0)
	if !ok || number.Len() != 1 || n < 1 {
		return message{}, fmt.Errorf("its sample number is %v", number)
	}
	text, _ := stime.Text()
	at, err := parseClock(text, k.zone)
	if err != nil {
		return message{}, err
	}
	if len(strings.TrimSpace(text)) == shortTime && time.Duration(k.plan.Period) < time.Second {
		return message{}, fmt.Errorf("its time, %q, has whole seconds only: set the equipment's TimeFormat to 1, 16 digits", text)
	}
	width := len(k.traceIDs)
	if values.Format != secs.List || values.Len() == 0 || values.Len()%width != 0 {
		return message{}, fmt.Errorf("it has %d values, no multiple of the %d that were asked for", values.Len(), width)
	}
	m := message{number: n, at: at}
	for rest := values.Items; len(rest) > 0; rest = rest[width:] {
		row := make([]float64, width)
		for i, item := range rest[:width] {
			row[i] = numberOf(item)
		}
		m.rows = append(m.rows, row)
	}
	if int64(len(m.rows)) > n {
		return message{}, fmt.Errorf("it has %d samples, and its last is number %d", len(m.rows), n)
	}
	return m, nil
}

// numberOf returns a variable's value; NaN, a missing one, if it is no single number.
func numberOf(i secs.Item) float64 {
	if v, ok := i.Number(0); ok && i.Len() == 1 {
		return v
	}
	if text, ok := i.Text(); ok {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v
		}
	}
	return math.NaN()
}

// fieldsOf returns the items of a list, which has this many.
func fieldsOf(i secs.Item, n int) ([]secs.Item, error) {
	if i.Format != secs.List || i.Len() != n {
		return nil, fmt.Errorf("it is no list of %d items: %v", n, i)
	}
	return i.Items, nil
}
