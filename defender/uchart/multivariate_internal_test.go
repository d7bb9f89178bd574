package uchart

import "testing"

// TestOldModelsAreForgotten: chambers whose models give way to others every 16 runs
// have each model trained once, and nothing is held for long that nobody asks for.
func TestOldModelsAreForgotten(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ chambers, runs, most int }{
		"one chamber":                     {1, 40_000, 2 * minAsked},
		"those of one defender of 45":     {89, 4_000, 3 * 89},
		"those of the only one":           {4_000, 100, 2 * maxModels},
		"more than there is room for":     {3 * maxModels, 20, 2 * maxModels},
		"one run of many that come never": {50_000, 1, 2 * maxModels},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c modelCache
			trained, wanted, most := map[uint64]int{}, map[uint64]bool{}, 0
			for run := range tt.runs {
				for chamber := range tt.chambers {
					version := uint64(chamber)<<32 | uint64((run+chamber)/16)
					c.get(version, train(trained, version))
					wanted[version] = true
					most = max(most, len(c.young)+len(c.old))
				}
			}
			if most > tt.most {
				t.Errorf("%d models are held, want at most %d", most, tt.most)
			}
			if tt.chambers > maxModels {
				return
			}
			for version := range wanted {
				if n := trained[version]; n != 1 {
					t.Fatalf("a model was trained %d times", n)
				}
			}
		})
	}
}

func train(times map[uint64]int, version uint64) func() *trained {
	return func() *trained {
		times[version]++
		return new(trained)
	}
}
