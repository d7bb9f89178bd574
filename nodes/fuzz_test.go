package nodes

import (
	"encoding/json"
	"testing"
)

func FuzzRecord(f *testing.F) {
	for _, text := range specified {
		f.Add([]byte(text))
	}
	full, _ := json.Marshal(fullRecord())
	f.Add(full)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if json.Unmarshal(b, &r) != nil {
			return
		}
		once, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Record
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, _ := json.Marshal(again)
		if string(once) != string(twice) {
			t.Errorf("%s became %s", once, twice)
		}
	})
}
