package record

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// TestStableIDsAreThoseOfThePattern holds the hand-written check to a pattern, on IDs
// and what lies near them.
func TestStableIDsAreThoseOfThePattern(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}-(0|[1-9][0-9]{0,5})$`)
	const letters = "aZz09--_. é"
	rng := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for i := range 300_000 {
		id := make([]byte, rng.IntN(41))
		for j := range id {
			id[j] = letters[rng.IntN(len(letters))]
			if i%2 == 0 { // mostly valid
				id[j] = "ab-"[rng.IntN(3)]
			}
		}
		s := string(id)
		if i%4 == 0 {
			s += "-" + []string{"0", "7", "00", "01", "123456", "1234567", "", "12a"}[rng.IntN(8)]
		}
		if got, want := IsStableID(s), form.MatchString(s); got != want {
			t.Fatalf("%q is a stable ID: %t, want %t", s, got, want)
		} else if got {
			valid++
		}
	}
	if valid < 1000 {
		t.Errorf("only %d of the IDs are valid", valid)
	}
}
