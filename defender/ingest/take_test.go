package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
)

// rig is an Ingester on a real store and a real stream.
type rig struct {
	*Ingester
	store  defender.Store
	nc     *nats.Conn
	before func(step string) error // of making durable and announcing; may fail them
	Publisher
}

// MakeDurable implements Publisher.
func (r *rig) MakeDurable(ctx context.Context, ref defender.ContextRef, blob []byte) error {
	if err := r.before("durable"); err != nil {
		return err
	}
	return r.Publisher.MakeDurable(ctx, ref, blob)
}

// Announce implements Publisher.
func (r *rig) Announce(ctx context.Context, ref defender.ContextRef) (uint64, error) {
	if err := r.before("announce"); err != nil {
		return 0, err
	}
	return r.Publisher.Announce(ctx, ref)
}

func startRig(t *testing.T, changes ...func(*Config)) *rig {
	t.Helper()
	nc := natstest.Connect(t, natstest.Start(t).URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fdc.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c, err := collect.New(store, nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{store: store, nc: nc, Publisher: Through(c), before: func(string) error { return nil }}
	config := Config{Store: store, Publisher: r}
	for _, change := range changes {
		change(&config)
	}
	r.Ingester = New(config)
	return r
}

// completions returns the messages of the stream.
func (r *rig) completions(t *testing.T) []defender.Completion {
	t.Helper()
	s, err := natstest.JetStream(t, r.nc).Stream(t.Context(), defender.Stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []defender.Completion
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		c, err := defender.ParseCompletion(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// chart returns the stored T-chart of the run of wideCSV, nil if there is none.
func (r *rig) chart(t *testing.T) *tchart.Trace {
	t.Helper()
	blob, err := r.store.TChart(t.Context(), defender.TChartKey{Chamber: defender.Chamber{Tool: "etch1", Name: "a"}, Context: "r1"})
	if errors.Is(err, defender.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	trace, err := tchart.Decode(blob)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func statusOf(err error) int { return responseOf(Receipt{}, err).Status }

// TestTakeIsDurableAndThenAnnouncedOnce: the T-chart is stored before the message is published, a failure
// between the two is repaired by sending again, and other content changes nothing.
func TestTakeIsDurableAndThenAnnouncedOnce(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	run := func() *Run { return mustParse(t, CSV, wideCSV, query(wideMap)) }

	full := errors.New("no room")
	r.before = func(string) error { return full }
	if _, err := r.Take(t.Context(), run()); statusOf(err) != http.StatusServiceUnavailable || r.chart(t) != nil || len(r.completions(t)) != 0 {
		t.Fatalf("a store without room: %v", err)
	}
	r.before = func(step string) error {
		if step == "announce" && r.chart(t) == nil {
			t.Error("announced before it is durable")
		}
		if step == "announce" {
			return full
		}
		return nil
	}
	if _, err := r.Take(t.Context(), run()); statusOf(err) != http.StatusServiceUnavailable || r.chart(t) == nil || len(r.completions(t)) != 0 {
		t.Fatalf("a stream without room: %v", err)
	}
	if !strings.Contains(responseOf(r.Take(t.Context(), run())).Error, "send the same again") {
		t.Error("it doesn't say to send it again")
	}

	r.before = func(string) error { return nil }
	for range 2 {
		receipt, err := r.Take(t.Context(), run())
		if err != nil || !receipt.Repeated || receipt.Sequence == 0 || receipt.Rows != 3 || receipt.Sensors != 2 {
			t.Fatalf("sent again: %+v, %v", receipt, err)
		}
	}
	want := defender.NewCompletion(run().Ref)
	if got := r.completions(t); len(got) != 1 || got[0] != want {
		t.Errorf("the messages are %+v, want %+v once", got, want)
	}
	if chambers, err := r.store.Chambers(t.Context()); err != nil || len(chambers) != 1 || chambers[0].Chamber.String() != "etch1:a" || chambers[0].Weight != 6 {
		t.Errorf("the chambers are %+v, %v", chambers, err)
	}

	for _, other := range []struct{ csv, parameters, why string }{
		{strings.Replace(wideCSV, "1229", "1230", 1), query(wideMap), `"Pressure" of row 2 was 1229 and is 1230`},
		{strings.Replace(wideCSV, "step,Pressure", "step,Press", 1), query(wideMap), `sensor 1 was "Pressure" and is "Press"`},
		{wideCSV, query(wideMap + "&lot=L2"), `the lot was "" and is "L2"`},
		{strings.Replace(wideCSV, "00.1Z", "00.15Z", 1), query(wideMap), "the time of row 2 was 0.1 and is 0.15"},
		{wideCSV + "2026-03-01T12:00:00.3Z,5,1,1\n", query(wideMap), "it had 3 rows of 2 sensors and has 4 of 2"},
	} {
		_, err := r.Take(t.Context(), mustParse(t, CSV, other.csv, other.parameters))
		if statusOf(err) != http.StatusConflict || !strings.Contains(err.Error(), other.why) {
			t.Errorf("other content: %v, want %s", err, other.why)
		}
	}
	if got := r.completions(t); len(got) != 1 || r.chart(t).Values[0][1] != 1229 {
		t.Errorf("other content has changed something: %d messages", len(got))
	}
}

// TestTakeAfterItWasJudged: a result stands for the message, and has the time that the run had.
func TestTakeAfterItWasJudged(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	run := mustParse(t, CSV, wideCSV, query(wideMap))
	if _, err := r.Take(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	chart, err := uchart.Compute(&run.Trace)
	if err != nil {
		t.Fatal(err)
	}
	result := defender.NewResult(run.Ref, chart, uchart.Judge(nil, chart, uchart.Policy{}), time.Now().Add(time.Hour))
	if _, err := r.store.Commit(t.Context(), defender.Fence{}, result); err != nil {
		t.Fatal(err)
	}
	receipt, err := r.Take(t.Context(), run)
	if err != nil || !receipt.Repeated || receipt.Sequence != 0 {
		t.Errorf("after it was judged: %+v, %v", receipt, err)
	}
	later := mustParse(t, CSV, strings.ReplaceAll(wideCSV, "T12:", "T13:"), query(wideMap))
	if _, err := r.Take(t.Context(), later); statusOf(err) != http.StatusConflict || !strings.Contains(err.Error(), "it ran from 2026-03-01T12:00:00Z") {
		t.Errorf("the same an hour later: %v", err)
	}
}

// TestTakeAfterTheTChartExpired: statistics tell whether a run that was judged is the same.
func TestTakeAfterTheTChartExpired(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	run := mustParse(t, CSV, wideCSV, query(wideMap))
	chart, err := uchart.Compute(&run.Trace)
	if err != nil {
		t.Fatal(err)
	}
	result := defender.NewResult(run.Ref, chart, uchart.Judge(nil, chart, uchart.Policy{}), time.Now().Add(time.Hour))
	if _, err := r.store.Commit(t.Context(), defender.Fence{}, result); err != nil {
		t.Fatal(err)
	}

	receipt, err := r.Take(t.Context(), run)
	if err != nil || !receipt.Repeated || receipt.Sequence != 0 {
		t.Errorf("the same: %+v, %v", receipt, err)
	}
	for _, other := range []struct{ csv, parameters, why string }{
		{strings.Replace(wideCSV, "1229", "1230", 1), query(wideMap), "its statistics were others"},
		{wideCSV, query(wideMap + "&lot=L2"), `the lot was "" and is "L2"`},
		{strings.ReplaceAll(wideCSV, "T12:", "T13:"), query(wideMap), "it ran from 2026-03-01T12:00:00Z"},
	} {
		_, err := r.Take(t.Context(), mustParse(t, CSV, other.csv, other.parameters))
		if statusOf(err) != http.StatusConflict || !strings.Contains(err.Error(), other.why) {
			t.Errorf("other content: %v, want %s", err, other.why)
		}
	}
	if r.chart(t) != nil || len(r.completions(t)) != 0 {
		t.Error("something was stored or announced")
	}
}

// TestTakeKnowsMissingSamples: formats write a missing sample as NaNs of other bits, and as none.
func TestTakeKnowsMissingSamples(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	run := mustParse(t, CSV, strings.Replace(wideCSV, "1229", "NaN", 1), query(wideMap))
	if _, err := r.Take(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	run.Trace.Values[0][1] = math.Float64frombits(0x7ff8000000000000) // as NumPy has it, and Parquet from there
	if receipt, err := r.Take(t.Context(), run); err != nil || !receipt.Repeated {
		t.Errorf("with a NaN of other bits: %+v, %v", receipt, err)
	}
	run.Trace.Values[0][1] = 1229
	if _, err := r.Take(t.Context(), run); statusOf(err) != http.StatusConflict || !strings.Contains(err.Error(), `"Pressure" of row 2 was NaN and is 1229`) {
		t.Errorf("with the sample: %v", err)
	}
}

// post sends a table over HTTP.
func post(t *testing.T, server, parameters, contentType, token string, body io.Reader) (*http.Response, Response) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server+Path+"?"+parameters, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer Response
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != resp.StatusCode {
		t.Errorf("the answer says %d and HTTP %d", answer.Status, resp.StatusCode)
	}
	return resp, answer
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	r := startRig(t, func(c *Config) {
		c.MaxBytes, c.AtOnce = 5000, 1
		c.Defaults = url.Values{"time-column": {"ts"}, "step-column": {"step"}}
	})
	const token = "0123456789abcdef"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("another-token-of-old\n"+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler(Access{File: tokens}))
	t.Cleanup(server.Close)

	for _, test := range []struct {
		name, parameters, contentType, token, body string
		status                                     int
		want                                       string
	}{
		{"no token", query(""), "text/csv", "0123456789abcdeX", wideCSV, 401, "send Authorization: Bearer"},
		{"a form", query(""), "application/x-www-form-urlencoded", token, wideCSV, 415, "give one of text/csv, application/json"},
		{"too large", query(""), "text/csv", token, wideCSV + strings.Repeat(" ", 5000), 413, "more than 5000 bytes"},
		{"a bad cell", query(""), "text/csv", token, strings.Replace(wideCSV, "1229", "?", 1), 400, `row 2, "Pressure": "?" is not a number`},
	} {
		resp, answer := post(t, server.URL, test.parameters, test.contentType, test.token, strings.NewReader(test.body))
		if resp.StatusCode != test.status || !strings.Contains(answer.Error, test.want) {
			t.Errorf("%s: %s, %+v", test.name, resp.Status, answer)
		}
	}
	if got := r.completions(t); len(got) != 0 || r.chart(t) != nil {
		t.Errorf("a refused run has left %d messages", len(got))
	}

	leave, err := r.enter()
	if err != nil {
		t.Fatal(err)
	}
	resp, answer := post(t, server.URL, query(""), "text/csv", token, strings.NewReader(wideCSV))
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" || answer.RetryAfter != 1 {
		t.Errorf("while there is no place: %s, %+v", resp.Status, answer)
	}
	leave()
	_, answer = post(t, server.URL, query(""), "text/csv; charset=utf-8", token, strings.NewReader(wideCSV))
	if answer.Status != http.StatusCreated || answer.Receipt == nil || answer.Sequence != 1 || answer.TChart != "etch1:a/r1" {
		t.Errorf("the run is answered by %+v", answer)
	}
	if _, answer := post(t, server.URL, query(""), "application/vnd.apache.parquet", token, strings.NewReader(parquetTable(t))); answer.Status != http.StatusOK {
		t.Errorf("the same as Parquet is answered by %+v", answer)
	}
}

func TestNATS(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, r.nc) }()
	ask := func(parameters string, data []byte) Response {
		t.Helper()
		m := &nats.Msg{Subject: Subject, Data: data, Header: nats.Header{ParametersHeader: {parameters}, FormatHeader: {string(CSV)}}}
		var answer Response
		reply, err := r.nc.RequestMsg(m, 10*time.Second)
		for errors.Is(err, nats.ErrNoResponders) { // it doesn't listen yet
			reply, err = r.nc.RequestMsg(m, 10*time.Second)
		}
		if err == nil {
			err = json.Unmarshal(reply.Data, &answer)
		}
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := ask(query(wideMap), []byte(wideCSV)); got.Status != http.StatusCreated || got.Sequence != 1 {
		t.Errorf("the run is answered by %+v", got)
	}
	if got := ask(query(wideMap), []byte(wideCSV)); got.Status != http.StatusOK || !got.Repeated {
		t.Errorf("the same is answered by %+v", got)
	}
	if got := ask(query(wideMap), bytes.Replace([]byte(wideCSV), []byte("1229"), []byte("?"), 1)); got.Status != http.StatusBadRequest || len(got.Problems) != 1 {
		t.Errorf("a bad cell is answered by %+v", got)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := r.nc.Request(Subject, nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after its end it answers, or %v", err)
	}
}
