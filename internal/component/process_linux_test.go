package component

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAComponentDiesWithAKilledTest runs this test once more in a process of its own, whose component holds a pipe open, kills that
// process and waits until nobody holds the pipe any more.
func TestAComponentDiesWithAKilledTest(t *testing.T) {
	if os.Getenv("COMPONENT_LIFE") != "" {
		shell(`exec 3>"$COMPONENT_LIFE"; echo up >&3; echo ready nowhere; exec sleep 1000`).Start(t)
		select {}
	}
	life := filepath.Join(t.TempDir(), "life")
	if err := syscall.Mkfifo(life, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAComponentDiesWithAKilledTest$")
	cmd.Env = append(os.Environ(), "COMPONENT_LIFE="+life, "XDG_CACHE_HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.Open(life) // waits for the component
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := io.ReadFull(pipe, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_ = pipe.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(pipe); err != nil {
		t.Errorf("the component lives on: %v", err)
	}
}
