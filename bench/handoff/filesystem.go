package handoff

import (
	"fmt"
	"os"
	"strings"
)

// StoreFilesystem describes where the servers' stores of a run are: the directory for
// temporary files and its type of file system. It decides what writing costs: "tmpfs"
// is memory.
func StoreFilesystem() string { return FilesystemOf(os.TempDir()) }

// FilesystemOf describes a directory and its type of file system.
func FilesystemOf(dir string) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return dir
	}
	kind, longest := "unknown file system", -1
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at := fields[1]
		inside := at == "/" || dir == at || strings.HasPrefix(dir, at+"/")
		if inside && len(at) >= longest {
			kind, longest = fields[2], len(at)
		}
	}
	return fmt.Sprintf("%s (%s)", dir, kind)
}
