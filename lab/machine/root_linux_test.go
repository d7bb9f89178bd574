package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithMemory(t *testing.T) {
	got := withMemory("MemTotal:       24689764 kB\nMemFree:        17854320 kB\nMemAvailable:   22000000 kB\nBuffers:          411000 kB\n", 2<<30)
	want := "MemTotal:        2097152 kB\nMemFree:         2097152 kB\nMemAvailable:    2097152 kB\nBuffers:          411000 kB\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFleet_reserve(t *testing.T) {
	f := &Fleet{machines: map[string]*Machine{}}
	for _, test := range []struct {
		name string
		spec Spec
		want string // of the error; "": there is none
	}{
		{"a first one", Spec{ID: "i-1", Memory: 1 << 30}, ""},
		{"one that was started", Spec{ID: "i-1", Memory: 1 << 30}, "started before"},
		{"a path as an ID", Spec{ID: "../etc", Memory: 1 << 30}, "use small letters"},
		{"too little memory", Spec{ID: "i-2", Memory: 1 << 20}, "give it 256 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := f.reserve(test.spec)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}

	t.Run("numbers are not shared", func(t *testing.T) {
		second, err := f.reserve(Spec{ID: "i-2", Memory: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if first := f.Find("i-1"); first.Address == second.Address {
			t.Errorf("both have %s", first.Address)
		}
	})
}

func TestAbandoned(t *testing.T) {
	own, err := ownName()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		own:                 false,
		prefix + "1-1":      true, // the first process was not started in the first tick
		own + "1":           true, // a process of that number is there, and started at another time
		prefix + "lock":     false,
		prefix + "x-y":      false,
		prefix + "99999999": false,
	} {
		if got := abandoned(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestSweep(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	own, err := ownName()
	if err != nil {
		t.Fatal(err)
	}
	gone, mine := filepath.Join(os.TempDir(), prefix+"1-1"), filepath.Join(os.TempDir(), own)
	for _, dir := range []string{filepath.Join(gone, "i-1", "root"), mine} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("what a lab that was killed has left is there")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("a living lab's folder is not: %v", err)
	}
}
