package partition

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
)

func validAssignment() *Assignment {
	return &Assignment{Schema: mapSchema, Version: 4, Epoch: 9, Leader: Member{"w-0", 1}, Layout: 1, Slots: 3,
		Workers: []Member{{"w-0", 1}, {"w-1", 2}}, Owner: []int32{0, 1, none}, Since: []uint64{1, 4, 2},
		Moves: map[int]plannedMove{0: {Next: 1, Version: 4}}, Taking: map[int]bool{1: true}}
}

func TestAssignmentValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*Assignment)
		faults []string
	}{
		{"a valid map", func(*Assignment) {}, nil},
		{"a newer schema", func(a *Assignment) { a.Schema++ }, []string{"schema"}},
		{"no slots", func(a *Assignment) { a.Slots = 0 }, []string{"slots", "owner and since"}},
		{"too many slots", func(a *Assignment) { a.Slots = maxSlots + 1 }, []string{"slots"}},
		{"a column too short", func(a *Assignment) { a.Since = a.Since[:2] }, []string{"owner and since"}},
		{"a worker named twice", func(a *Assignment) { a.Workers[1].ID = "w-0" }, []string{"workers[1]"}},
		{"a worker without a name", func(a *Assignment) { a.Workers[0].ID = "" }, []string{"workers[0]"}},
		{"an owner who is not there", func(a *Assignment) { a.Owner[2] = 2 }, []string{"owner[2]"}},
		{"an owner below nobody", func(a *Assignment) { a.Owner[2] = -2 }, []string{"entry 2"}},
		{"an owner since later", func(a *Assignment) { a.Since[0] = 5 }, []string{"since[0]"}},
		{"a move of no slot", func(a *Assignment) { a.Moves[3] = plannedMove{} }, []string{"moves[3]"}},
		{"a move to nobody", func(a *Assignment) { a.Moves[0] = plannedMove{Next: none} }, []string{"moves[0]"}},
		{"a move of a later version", func(a *Assignment) { a.Moves[0] = plannedMove{Next: 1, Version: 5} }, []string{"moves[0]"}},
		{"taking for nobody", func(a *Assignment) { a.Taking[2] = true }, []string{"taking[2]"}},
		{"all at once", func(a *Assignment) { a.Owner[0] = 7; a.Since[1] = 7; a.Moves[9] = plannedMove{} },
			[]string{"owner[0]", "since[1]", "moves[9]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := validAssignment()
			tt.change(a)
			_, err := DecodeAssignment(a.encode())
			if tt.faults == nil && err != nil {
				t.Fatal(err)
			}
			for _, f := range tt.faults {
				if err == nil || !strings.Contains(err.Error(), f) {
					t.Errorf("error %v, want one about %s", err, f)
				}
			}
		})
	}
}

func TestAssignmentQuestions(t *testing.T) {
	t.Parallel()
	a := validAssignment()
	if got := a.OwnerOf(0); got != "w-1" {
		t.Errorf("slot 0 is %q's, want its next owner's", got)
	}
	for _, s := range []int{-1, 2, 3} {
		if got := a.OwnerOf(s); got != "" {
			t.Errorf("slot %d is %q's, want no owner", s, got)
		}
	}
	if n := a.Counts(); n["w-0"] != 0 || n["w-1"] != 2 {
		t.Errorf("counts %v", n)
	}
	if a.Settled() {
		t.Error("it is settled with a move under way")
	}
	c := a.clone()
	c.Owner[0], c.Moves[1], c.Taking[0], c.Workers[0].ID = 1, plannedMove{}, true, "x"
	if !bytes.Equal(a.encode(), validAssignment().encode()) {
		t.Error("a clone shares something with its original")
	}
}

func TestMovesThatCantBeAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"AQA=":         "want three", // two entries
		"AAAB":         "0 further",  // the slot before once more
		"gYAEAAE=":     "want 1 to",  // slot 65,536
		"AYGAgIAIAQ==": "worker's index",
		"AQAB*":        "illegal base64",
	} {
		var m moveTable
		if err := m.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	all := make(moveTable, maxSlots)
	for s := range maxSlots {
		all[s] = plannedMove{Next: int32(s % 99), Version: 7}
	}
	text, err := all.MarshalText()
	var got moveTable
	if err = errors.Join(err, got.UnmarshalText(text)); err != nil || !maps.Equal(got, all) {
		t.Errorf("all slots that there can be, moving: %d come back, %v", len(got), err)
	}
}

// FuzzDecodeAssignment: what is accepted can be asked everything, and is written
// as it was read.
func FuzzDecodeAssignment(f *testing.F) {
	f.Add(validAssignment().encode())
	f.Add([]byte(`{"schema":1,"slots":1,"owner":[0],"since":[0]}`))
	f.Add([]byte(`{"schema":1,"slots":1,"owner":[-1],"since":[0],"moves":"AQAB"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeAssignment(data)
		if err != nil {
			return
		}
		a.Counts()
		a.Settled()
		for s := range a.Slots {
			a.owner(s)
			a.OwnerOf(s)
		}
		b, err := DecodeAssignment(a.encode())
		if err != nil {
			t.Fatalf("%s is accepted, and then not: %v", data, err)
		}
		if !bytes.Equal(a.encode(), b.encode()) {
			t.Errorf("%s is read as %s and then as %s", data, a.encode(), b.encode())
		}
	})
}
