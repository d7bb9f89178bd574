package defender_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// Example processes one context as a worker does, and then shows what happens to
// an owner that has been replaced.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "muster.db")})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	// The collector stores a T-chart and announces it.
	wafer := (&trace.Generator{Seed: 1}).Wafer(0)
	end := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	ref := defender.ContextRef{
		Chamber: defender.Chamber{Tool: "tool001", Name: "chamber1"}, ID: wafer.Trace.Context, Recipe: wafer.Trace.Recipe,
		Start: end.Add(-2 * time.Minute), End: end,
	}
	blob, err := tchart.Encode(&wafer.Trace)
	if err != nil {
		panic(err)
	}
	if err := store.PutTChart(ctx, ref.TChart(), blob, end.AddDate(0, 0, 7)); err != nil {
		panic(err)
	}
	message := defender.NewCompletion(ref)

	// The owner of the chamber judges it by the ones before.
	fence := defender.Fence{MapVersion: 7, ClaimRevision: 3}
	ref = message.Ref()
	history, err := store.History(ctx, defender.HistoryQuery{Chamber: ref.Chamber, Recipe: ref.Recipe, Before: ref.Position(), Limit: 50})
	if err != nil {
		panic(err)
	}
	if blob, err = store.TChart(ctx, ref.TChart()); err != nil {
		panic(err)
	}
	t, err := tchart.Decode(blob)
	if err != nil {
		panic(err)
	}
	chart, err := uchart.Compute(t)
	if err != nil {
		panic(err)
	}
	verdict := uchart.Judge(defender.Points(history), chart, uchart.Policy{})
	result := defender.NewResult(ref, chart, verdict, end.AddDate(1, 0, 0))
	for range 2 {
		outcome, err := store.Commit(ctx, fence, result)
		fmt.Println(verdict.State, outcome.Stored, err)
	}

	// A stale owner changes nothing.
	_, err = store.Commit(ctx, defender.Fence{MapVersion: 6, ClaimRevision: 9}, result)
	fmt.Println(errors.Is(err, defender.ErrFenced))
	// Output:
	// learning true <nil>
	// learning false <nil>
	// true
}
