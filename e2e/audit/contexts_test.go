package audit

import "testing"

// TestContextAccount: each fault is counted, and nothing else.
func TestContextAccount(t *testing.T) {
	t.Parallel()
	published := []Published{{Key: "a", Context: "1"}, {Key: "a", Context: "2"}, {Key: "b", Context: "1"}, {Key: "a", Context: "1"}}
	stored := func(key, context string, version, claim uint64) effect {
		return effect{kind: "stored", key: key, context: context, version: version, claim: claim}
	}
	for name, tt := range map[string]struct {
		effects []effect
		want    ContextAccount
	}{
		"all stored":            {[]effect{stored("a", "1", 1, 1), stored("b", "1", 1, 1), stored("a", "2", 2, 1)}, ContextAccount{Stored: 3}},
		"one lost":              {[]effect{stored("a", "2", 1, 1), stored("b", "1", 1, 1)}, ContextAccount{Stored: 2, Unstored: 1}},
		"stored again":          {[]effect{stored("a", "1", 1, 1), stored("a", "1", 1, 1), stored("a", "2", 1, 1), stored("b", "1", 1, 1)}, ContextAccount{Stored: 3, StoredTwice: 1}},
		"changed":               {[]effect{stored("a", "1", 1, 1), {kind: "changed", key: "a", context: "1"}, stored("a", "2", 1, 1), stored("b", "1", 1, 1)}, ContextAccount{Stored: 3, StoredTwice: 1}},
		"out of order":          {[]effect{stored("a", "2", 1, 1), stored("a", "1", 1, 1), stored("b", "1", 1, 1)}, ContextAccount{Stored: 3, OutOfOrder: 1}},
		"under a former fence":  {[]effect{stored("a", "1", 2, 1), stored("a", "2", 1, 9), stored("b", "1", 1, 1)}, ContextAccount{Stored: 3, FenceBack: 1}},
		"of nothing published":  {[]effect{stored("a", "1", 1, 1), stored("a", "2", 1, 1), stored("b", "1", 1, 1), stored("c", "1", 1, 1)}, ContextAccount{Stored: 3, FromNowhere: 1}},
		"under a former claim":  {[]effect{stored("a", "1", 2, 3), stored("a", "2", 2, 2), stored("b", "1", 1, 1)}, ContextAccount{Stored: 3, FenceBack: 1}},
		"nothing is stored yet": {nil, ContextAccount{Unstored: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := accountContexts(published, tt.effects), tt.want
			if got.Published != 3 || got.Stored != want.Stored || got.Unstored != want.Unstored || got.StoredTwice != want.StoredTwice ||
				got.OutOfOrder != want.OutOfOrder || got.FenceBack != want.FenceBack || got.FromNowhere != want.FromNowhere || len(got.Missing) != want.Unstored {
				t.Errorf("it is %+v, want %+v", got, want)
			}
			if faults := want.StoredTwice + want.OutOfOrder + want.FenceBack + want.FromNowhere; len(got.Faults) != faults {
				t.Errorf("faults are %q, want %d", got.Faults, faults)
			}
		})
	}
}
