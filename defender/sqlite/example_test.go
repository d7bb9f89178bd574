package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "muster")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "muster.db")})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	chamber := defender.Chamber{Tool: "tool001", Name: "chamber1"}
	if err := store.RegisterChambers(ctx, []defender.ChamberInfo{{Chamber: chamber, Weight: 120_000}}); err != nil {
		panic(err)
	}
	chambers, err := store.Chambers(ctx)
	fmt.Println(chambers, err)
	// Output: [{tool001:chamber1 120000}] <nil>
}
