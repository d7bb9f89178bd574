package record

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
)

func validAssignment() *Assignment {
	return &Assignment{Schema: MapSchema, Version: 4, Epoch: 9, Leader: Process{"w-0", 1}, Layout: 1, Slots: 3,
		Workers: []Process{{"w-0", 1}, {"w-1", 2}}, Owner: []int32{0, 1, None}, Since: []uint64{1, 4, 2},
		Moves: map[int]Move{0: {Next: 1, Version: 4}}, Taking: map[int]bool{1: true}}
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
		{"too many slots", func(a *Assignment) { a.Slots = MaxSlots + 1 }, []string{"slots"}},
		{"a column too short", func(a *Assignment) { a.Since = a.Since[:2] }, []string{"owner and since"}},
		{"a worker named twice", func(a *Assignment) { a.Workers[1].ID = "w-0" }, []string{"workers[1]"}},
		{"a worker without a name", func(a *Assignment) { a.Workers[0].ID = "" }, []string{"workers[0]"}},
		{"an owner who is not there", func(a *Assignment) { a.Owner[2] = 2 }, []string{"owner[2]"}},
		{"an owner below nobody", func(a *Assignment) { a.Owner[2] = -2 }, []string{"entry 2"}},
		{"an owner since later", func(a *Assignment) { a.Since[0] = 5 }, []string{"since[0]"}},
		{"a move of no slot", func(a *Assignment) { a.Moves[3] = Move{} }, []string{"moves[3]"}},
		{"a move to nobody", func(a *Assignment) { a.Moves[0] = Move{Next: None} }, []string{"moves[0]"}},
		{"a move of a later version", func(a *Assignment) { a.Moves[0] = Move{Next: 1, Version: 5} }, []string{"moves[0]"}},
		{"taking for nobody", func(a *Assignment) { a.Taking[2] = true }, []string{"taking[2]"}},
		{"all at once", func(a *Assignment) { a.Owner[0] = 7; a.Since[1] = 7; a.Moves[9] = Move{} },
			[]string{"owner[0]", "since[1]", "moves[9]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := validAssignment()
			tt.change(a)
			_, err := DecodeAssignment(a.Encode())
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
	c := a.Clone()
	c.Owner[0], c.Moves[1], c.Taking[0], c.Workers[0].ID = 1, Move{}, true, "x"
	if !bytes.Equal(a.Encode(), validAssignment().Encode()) {
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
		var m MoveTable
		if err := m.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	all := make(MoveTable, MaxSlots)
	for s := range MaxSlots {
		all[s] = Move{Next: int32(s % 99), Version: 7}
	}
	text, err := all.MarshalText()
	var got MoveTable
	if err = errors.Join(err, got.UnmarshalText(text)); err != nil || !maps.Equal(got, all) {
		t.Errorf("all slots that there can be, moving: %d come back, %v", len(got), err)
	}
}

// FuzzDecodeAssignment: what is accepted can be asked everything, and is written
// as it was read.
func FuzzDecodeAssignment(f *testing.F) {
	f.Add(validAssignment().Encode())
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
			a.OwnerAt(s)
			a.OwnerOf(s)
		}
		b, err := DecodeAssignment(a.Encode())
		if err != nil {
			t.Fatalf("%s is accepted, and then not: %v", data, err)
		}
		if !bytes.Equal(a.Encode(), b.Encode()) {
			t.Errorf("%s is read as %s and then as %s", data, a.Encode(), b.Encode())
		}
	})
}

func TestAMapFromTheFutureOrOfAnOlderLeaderIsRefused(t *testing.T) {
	t.Parallel()
	a := validAssignment()
	for _, c := range []struct {
		what           string
		version, epoch uint64
		rev            uint64
		refused        bool
	}{
		{"the next version", a.Version + 1, a.Epoch, 50, false},
		{"the same, with handoffs done", a.Version, a.Epoch, 50, false},
		{"a later leader that begins with a new map", 1, a.Epoch + 1, 50, false},
		{"a version beyond its write", 50, a.Epoch, 50, true},
		{"a version that was raised", RaisedVersion(goldenTime()), a.Epoch, 50, false},
		{"a version that will be raised in forty years", RaisedVersion(goldenTime().AddDate(40, 0, 0)), a.Epoch, 50, true},
		{"an epoch beyond its write", a.Version, 51, 50, true},
		{"a former leader", a.Version + 1, a.Epoch - 1, 50, true},
		{"an older version", a.Version - 1, a.Epoch, 50, true},
	} {
		b := a.Clone()
		b.Version, b.Epoch = c.version, c.epoch
		if err := b.CheckOrder(c.rev, a, goldenTime()); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
