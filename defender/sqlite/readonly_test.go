package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
)

func TestReadOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.sqlite")
	if _, err := Open(t.Context(), Config{Path: path, ReadOnly: true}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "created by the first defender") {
		t.Fatalf("a file that is not there: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it was created: %v", err)
	}

	writer, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	reader, err := Open(t.Context(), Config{Path: path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	ch := defender.Chamber{Tool: "tool001", Name: "chamber1"}
	if err := writer.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: ch, Weight: 1}}); err != nil {
		t.Fatal(err)
	}
	if list, err := reader.Chambers(t.Context()); err != nil || len(list) != 1 || list[0].Chamber != ch {
		t.Errorf("it reads %v, %v", list, err)
	}
	for what, err := range map[string]error{
		"RegisterChambers": reader.RegisterChambers(t.Context(), []defender.ChamberInfo{{Chamber: ch, Weight: 1}}),
		"RaiseFence":       reader.RaiseFence(t.Context(), ch, defender.Fence{MapVersion: 1}),
		"PutTChart":        reader.PutTChart(t.Context(), defender.TChartKey{Chamber: ch, Context: "run1"}, nil, time.Now()),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}
