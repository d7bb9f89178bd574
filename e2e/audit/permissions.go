package audit

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// PermissionErrors returns what a server's log has of requests without permission.
func PermissionErrors(log string) ([]string, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("looking for refused requests: %w", err)
	}
	defer func() { _ = f.Close() }()
	var all []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if _, what, is := strings.Cut(lines.Text(), " Violation - "); is {
			all = append(all, what)
		}
	}
	return all, lines.Err()
}
