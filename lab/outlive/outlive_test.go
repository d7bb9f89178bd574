package outlive

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// orphan is the variable that makes the test's program one that writes after its parent has gone; its value is a file that it creates at
// its end.
const orphan = "LAB_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if file := os.Getenv(orphan); file != "" {
		Parent()
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("to nobody")
		fmt.Fprintln(os.Stderr, "to nobody")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestParent has a process write to pipes that nobody reads any more, as those of a killed parent are.
func TestParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ended")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), orphan+"="+file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{writer, reader, in} { // what the parent had
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	if _, missing := os.Stat(file); err != nil || missing != nil {
		t.Errorf("the process ended with %v; what it does at its end: %v", err, missing)
	}
}
