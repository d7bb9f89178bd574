package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Path is where runs are posted.
const Path = "/ingest"

// bodyTimeout is how long a table may take to arrive: a sender that stops holds a place that
// others wait for.
const bodyTimeout = time.Minute

// serversTimeout is how long the store and the NATS servers may take for a run.
const serversTimeout = 30 * time.Second

// Response is the answer to a run that was sent, by HTTP or NATS.
type Response struct {
	Status int `json:"status"` // of HTTP
	*Receipt
	Error      string    `json:"error,omitempty"`
	Problems   []Problem `json:"problems,omitempty"`
	RetryAfter int       `json:"retry_after,omitempty"` // seconds; absent if the same would be refused again
}

// Handler returns what serves POST [Path] for senders that access admits.
func (i *Ingester) Handler(access Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+Path, access.guard(http.HandlerFunc(i.serve)))
	return mux
}

func (i *Ingester) serve(w http.ResponseWriter, r *http.Request) {
	leave, err := i.enter()
	if err != nil {
		respond(w, responseOf(Receipt{}, err))
		return
	}
	defer leave()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // where the server can
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, i.config.MaxBytes))
	if err != nil {
		respond(w, responseOf(Receipt{}, bodyError(err)))
		return
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		respond(w, responseOf(Receipt{}, problem("", "the query: %v", err)))
		return
	}
	respond(w, responseOf(i.take(r.Context(), query, r.Header.Get("Content-Type"), data)))
}

// take parses what was sent and takes the run.
func (i *Ingester) take(ctx context.Context, query url.Values, contentType string, data []byte) (Receipt, error) {
	format, err := FormatOf(contentType)
	if err != nil {
		return Receipt{}, err
	}
	request, err := ParseRequest(query, i.config.Defaults)
	if err != nil {
		return Receipt{}, err
	}
	run, err := Parse(format, data, request)
	if err != nil {
		return Receipt{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, serversTimeout)
	defer cancel()
	receipt, err := i.Take(ctx, run)
	if err != nil {
		slog.Warn("run not taken", "tchart", run.Ref.TChart(), "err", err)
	}
	return receipt, err
}

// bodyError is why a body could not be read.
func bodyError(err error) error {
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "the table has more than %d bytes: send it as Parquet, or split the run", tooLarge.Limit)
	}
	return refuse(http.StatusBadRequest, "reading the table: %w: send all of it within %v", err, bodyTimeout)
}

// responseOf returns the answer to a run that was taken, or was not because of err.
func responseOf(receipt Receipt, err error) Response {
	var refusal *Refusal
	var problems *Problems
	switch {
	case err == nil && receipt.Repeated:
		return Response{Status: http.StatusOK, Receipt: &receipt}
	case err == nil:
		return Response{Status: http.StatusCreated, Receipt: &receipt}
	case errors.As(err, &problems):
		return Response{Status: http.StatusBadRequest, Error: problems.Error(), Problems: problems.List}
	case errors.As(err, &refusal):
		return Response{Status: refusal.Status, Error: err.Error(), RetryAfter: int(math.Ceil(refusal.RetryAfter.Seconds()))}
	}
	return Response{Status: http.StatusInternalServerError, Error: err.Error()}
}

func respond(w http.ResponseWriter, r Response) {
	w.Header().Set("Content-Type", "application/json")
	if r.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r) // a sender that is gone sends again
}
