package ingest

import (
	"net/http"
	"net/url"
	"testing"
)

// fuzz has a parser read anything: it returns a run that is valid, or what is wrong with the input.
func fuzz(f *testing.F, format Format) {
	request := query("time-column=ts&step-column=-&start=2026-03-01T12:00:00Z")
	f.Add([]byte("ts,P\n0,1\n1,2\n"), request)
	f.Add([]byte(`[{"ts":0,"P":1},{"ts":1,"P":null}]`), request)
	f.Add([]byte(`{"ts":[0,1],"P":[1,true]}`), request)
	f.Add([]byte(wideCSV), query(wideMap))
	f.Add([]byte("ts,s,v\n0,P,1\n1,Q,2\n"), request+"&sensor-column=s&value-column=v")
	f.Add([]byte(parquetTable(f)), query(wideMap))
	f.Add([]byte(arrowTable(f, false)), query(wideMap))
	f.Add([]byte(arrowTable(f, true)), query(wideMap))
	f.Fuzz(func(t *testing.T, data []byte, parameters string) {
		if _, err := url.ParseQuery(parameters); err != nil {
			t.Skip()
		}
		run, err := parse(format, string(data), parameters)
		if err != nil {
			if status := statusOf(err); status >= http.StatusInternalServerError {
				t.Errorf("the input's error has status %d: %v", status, err)
			}
			return
		}
		if err := run.Ref.Validate(); err != nil {
			t.Error(err)
		}
		if err := run.Trace.Validate(); err != nil {
			t.Error(err)
		}
		if n := len(run.Trace.Time) * (len(run.Trace.SVIDs) + 2); n > MaxNumbers {
			t.Errorf("it has %d numbers", n)
		}
	})
}

func FuzzCSV(f *testing.F)         { fuzz(f, CSV) }
func FuzzJSON(f *testing.F)        { fuzz(f, JSON) }
func FuzzParquet(f *testing.F)     { fuzz(f, Parquet) }
func FuzzArrowStream(f *testing.F) { fuzz(f, ArrowStream) }
func FuzzArrowFile(f *testing.F)   { fuzz(f, ArrowFile) }
