package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// eventQuery selects moments of the timeline.
type eventQuery struct {
	before uint64 // sequence number to go back from
	limit  int
	planes []string // nil: all
	text   string   // in lower case, which a moment contains; "": any
	about  string   // a worker, node, chamber or alarm that a moment is about; "": any
	period
}

func (q eventQuery) matches(m Moment) bool {
	return q.holds(m.At) && (q.planes == nil || slices.Contains(q.planes, m.Plane)) &&
		(q.text == "" || strings.Contains(strings.ToLower(m.Text), q.text) || strings.Contains(strings.ToLower(m.Subject), q.text) || strings.Contains(m.Kind, q.text)) &&
		(q.about == "" || m.Subject == q.about || mentions(m.Text, q.about))
}

// mentions reports whether a text has a name as a whole word: defender-1 is not in defender-12.
func mentions(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		begin, end := at+i, at+i+len(name)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if !partOfName(before) && !partOfName(after) {
			return true
		}
		at = begin + 1
	}
}

func partOfName(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_')
}

// eventQueryOf reads a request for moments: before is the sequence number to go back from, plane one plane or several with commas
// between them, from and to are times.
func eventQueryOf(r *http.Request) (eventQuery, error) {
	v := r.URL.Query()
	q := eventQuery{text: strings.ToLower(v.Get("contains")), about: v.Get("about")}
	if list := v.Get("plane"); list != "" {
		q.planes = strings.Split(list, ",")
	}
	var errs [3]error
	q.before, errs[0] = strconv.ParseUint(cmp.Or(v.Get("before"), strconv.FormatUint(1<<63, 10)), 10, 64)
	if errs[0] != nil {
		errs[0] = errors.New("before is a sequence number")
	}
	q.limit, errs[1] = numberOf(r, "limit", 200, 1, 1000)
	q.period, errs[2] = periodOf(r)
	return q, errors.Join(errs[:]...)
}

// getEvents pages through the timeline, newest first.
func (c *Console) getEvents(w http.ResponseWriter, r *http.Request) {
	q, err := eventQueryOf(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "%v", err)
		return
	}
	reply(w, c.search(q))
}

// search returns moments, newest first. What happens meanwhile is not kept waiting by a long search.
func (c *Console) search(q eventQuery) []Moment {
	const atOnce = 4096
	found, before := []Moment{}, q.before
	for {
		c.mu.Lock()
		found, before = c.moments.before(found, before, q.limit, atOnce, q.matches)
		ended := before <= c.moments.first()
		c.mu.Unlock()
		if ended || len(found) >= q.limit {
			return found
		}
	}
}

// getMoves returns handoffs and takeovers, newest first: of a slot, of a worker that had or got the slot, of a time.
func (c *Console) getMoves(w http.ResponseWriter, r *http.Request) {
	slot, errSlot := numberOf(r, "slot", -1, 0, 1<<20)
	limit, errLimit := numberOf(r, "limit", 200, 1, 2000)
	during, errTime := periodOf(r)
	if err := errors.Join(errSlot, errLimit, errTime); err != nil {
		problem(w, http.StatusBadRequest, "%v", err)
		return
	}
	worker := r.URL.Query().Get("worker")
	c.mu.Lock()
	found, _ := c.moves.before([]SlotMove{}, c.moves.next, limit, c.moves.limit, func(m SlotMove) bool {
		return (slot < 0 || m.Slot == slot) && (worker == "" || m.From == worker || m.To == worker) && during.holds(m.At)
	})
	c.mu.Unlock()
	reply(w, found)
}
