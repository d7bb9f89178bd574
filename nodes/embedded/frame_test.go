package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzScanFrames reads whatever a file may hold. It must not panic, not read beyond what is there, and say of whatever it could not
// read that it is torn or damaged.
func FuzzScanFrames(f *testing.F) {
	good := appendFrame(appendFrame(nil, []byte("one")), []byte("two"))
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(good, 0, 0, 0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, content []byte) {
		name := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var again []byte
		end, err := scanFrames(file, 0, func(p []byte) error { again = appendFrame(again, p); return nil })
		var ce *CorruptError
		if err != nil && !errors.As(err, &ce) {
			t.Fatal(err)
		}
		if end > int64(len(content)) || !bytes.Equal(again, content[:end]) {
			t.Errorf("read %d bytes of %d as %x", end, len(content), again)
		}
	})
}
