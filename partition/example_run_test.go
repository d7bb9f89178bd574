package partition_test

import (
	"io"
	"os"
	"testing"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// TestExample runs the example, which go test alone would only compile: its server is
// another one each time.
func TestExample(t *testing.T) { // not parallel: it sets the environment and standard output
	t.Setenv("NATS_URL", natstest.Start(t, natstest.Options{}))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = write
	Example()
	os.Stdout = stdout
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}

	got, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if want := "customer alice: two apples\n"; string(got) != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}
