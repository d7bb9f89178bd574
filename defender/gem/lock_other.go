//go:build !unix

package gem

// lockFile locks nothing: this operating system has no flock.
func lockFile(string) (unlock func() error, err error) { return func() error { return nil }, nil }
