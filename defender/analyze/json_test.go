package analyze_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
)

// TestReport_WriteJSON: with verdicts in a file or in memory the report is what encoding/json
// makes of it, byte by byte, and the file is gone afterwards.
func TestReport_WriteJSON(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	faulty, short := file(t, 30, "A<&>"), csvOf(t, "short.csv", plainNames, 3, 2, plain)
	for name, files := range map[string][]string{"a faulty run": {faulty}, "a group that isn't judged": {short, faulty}} {
		t.Run(name, func(t *testing.T) {
			all := &analyze.Analysis{Strategies: strategy.Default(), Keep: analyze.KeepAll}
			r, err := all.Files(t.Context(), files)
			if err != nil {
				t.Fatal(err)
			}
			r.Classify(nil)
			var want bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetIndent("", "  ")
			if err := e.Encode(r); err != nil {
				t.Fatal(err)
			}

			whole, err := analyze.NewVerdicts()
			if err != nil {
				t.Fatal(err)
			}
			inFile, err := (&analyze.Analysis{Strategies: strategy.Default(), Whole: whole}).Files(t.Context(), files)
			if err != nil {
				t.Fatal(err)
			}
			inFile.Classify(nil)
			for where, r := range map[string]*analyze.Report{"in memory": r, "in a file": inFile} {
				var got bytes.Buffer
				if err := r.WriteJSON(&got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), want.Bytes()) {
					t.Errorf("with verdicts %s it is\n%s\nwant\n%s", where, got.Bytes(), want.Bytes())
				}
			}
			if err := whole.Close(); err != nil {
				t.Error(err)
			}
			if err := inFile.WriteJSON(&bytes.Buffer{}); err == nil {
				t.Error("verdicts that are gone are written")
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("%v are left in the folder of temporary files (%v)", left, err)
			}
		})
	}
}
