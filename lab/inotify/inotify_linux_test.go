package inotify

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCheck lets this process open no more files, which the kernel refuses with the same
// error. Taking the instances of the user would keep other tests' nodes from starting.
func TestCheck(t *testing.T) {
	if err := Check(Node); err != nil {
		t.Fatalf("this machine has too few inotify instances left for a node: %v", err)
	}

	var former unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &former); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: former.Max}); err != nil {
		t.Fatal(err)
	}
	err := Check(Node)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &former); err != nil {
		t.Fatal(err)
	}

	if err == nil || !strings.Contains(err.Error(), "sysctl -w fs.inotify.max_user_instances") {
		t.Errorf("without an instance left: %v, want an error that names the setting", err)
	}
}
