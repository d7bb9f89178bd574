package defender

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition"
)

// Live serves what a running defender knows of itself and of the alarms that stand,
// as JSON:
//
//	GET  /api/v1/assignments                          slots and chambers that it has
//	GET  /api/v1/cache/stats                          histories in memory
//	GET  /api/v1/alarms/standing?chamber=C&all=true&limit=N
//	POST /api/v1/alarms/ack                           an [Acknowledgement], of media type application/json
//
// An acknowledgement that is not the first is answered with the first.
func Live(d *Defender, w *partition.Worker) http.Handler {
	mux := http.NewServeMux()
	l := live{d, w}
	mux.HandleFunc("GET /api/v1/assignments", l.assignments)
	mux.HandleFunc("GET /api/v1/cache/stats", func(rw http.ResponseWriter, _ *http.Request) { writeJSON(rw, http.StatusOK, d.CacheStats()) })
	mux.HandleFunc("GET /api/v1/alarms/standing", l.standing)
	mux.HandleFunc("POST /api/v1/alarms/ack", l.acknowledge)
	return mux
}

type live struct {
	d *Defender
	w *partition.Worker
}

// Assignments is what a defender has.
type Assignments struct {
	Worker   string    `json:"worker"` // stable ID, empty without one
	Version  uint64    `json:"version"`
	SlotsOf  int       `json:"slots_of"` // in how many the chambers are divided, 0 before the first map
	Slots    []int     `json:"slots"`
	Chambers []Chamber `json:"chambers"` // registered ones in the slots
}

func (l live) assignments(rw http.ResponseWriter, r *http.Request) {
	s := l.w.Status()
	a := Assignments{Worker: s.ID, Version: s.Version, SlotsOf: s.SlotsOf, Slots: append([]int{}, s.Slots...), Chambers: []Chamber{}}
	registered, err := l.d.config.Store.Chambers(r.Context())
	for _, c := range registered {
		if a.SlotsOf > 0 && slices.Contains(a.Slots, partition.SlotOf(a.SlotsOf, c.Chamber.Tool, c.Chamber.Name)) {
			a.Chambers = append(a.Chambers, c.Chamber)
		}
	}
	answer(rw, a, err)
}

func (l live) standing(rw http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r)
	q, errs := AlarmListQuery{Limit: limit}, []error{err}
	if s := r.URL.Query().Get("chamber"); s != "" {
		q.Chamber, err = ParseChamber(s)
		errs = append(errs, err)
	}
	if s := r.URL.Query().Get("all"); s != "" {
		if q.All, err = strconv.ParseBool(s); err != nil {
			errs = append(errs, fmt.Errorf("all is %q: give true or false", s))
		}
	}
	if err := errors.Join(errs...); err != nil {
		refuse(rw, http.StatusBadRequest, err)
		return
	}
	list, err := ListAlarms(r.Context(), l.d.config.Conn, q)
	answer(rw, list, err)
}

// maxAcknowledgement is more than any takes, in bytes.
const maxAcknowledgement = 1 << 13

func (l live) acknowledge(rw http.ResponseWriter, r *http.Request) {
	// Pages of other sites can send forms and plain text, but not this without being
	// asked for permission first.
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		refuse(rw, http.StatusUnsupportedMediaType, errors.New("send an acknowledgement as application/json"))
		return
	}
	var a Acknowledgement
	dec := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxAcknowledgement))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		refuse(rw, http.StatusBadRequest, fmt.Errorf("reading the acknowledgement: %w: give chamber, opened, by and perhaps note", err))
		return
	}
	a.At = time.Now().UTC()
	if err := a.Validate(); err != nil {
		refuse(rw, http.StatusBadRequest, err)
		return
	}
	kept, err := Acknowledge(r.Context(), l.d.config.Conn, a)
	answer(rw, kept, err)
}
