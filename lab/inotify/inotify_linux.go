// Package inotify says whether the kernel lets another node watch its files.
package inotify

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is how many inotify instances a node opens: the kubelet five, containerd one.
const Node = 6

// limit is how many instances all processes of a user may have open, on all machines of the
// lab together.
const limit = "/proc/sys/fs/inotify/max_user_instances"

// Check returns an error if the kernel does not let this node open the instances needed. A
// kubelet that gets none runs on and never becomes Ready. Machines that boot at the same time
// can all pass this check and still want too many: then the kubelet's log has the error.
func Check(needed int) error {
	for range needed {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if errors.Is(err, unix.EMFILE) {
			allowed, _ := os.ReadFile(limit) // only for the message
			return fmt.Errorf("this machine cannot hold another node: a node needs %d inotify instances, and fs.inotify.max_user_instances (%s) leaves fewer. Raise it: sysctl -w fs.inotify.max_user_instances=8192",
				needed, strings.TrimSpace(string(allowed)))
		}
		if err != nil {
			return fmt.Errorf("asking for an inotify instance: %w", err)
		}
		defer func() { _ = unix.Close(fd) }() // all are held until the last is there
	}
	return nil
}
