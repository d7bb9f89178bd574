package await_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// failing is a test that panics with the reason that it fails for.
type failing struct{ testing.TB }

func (failing) Helper() {}

func (failing) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestThat(t *testing.T) {
	t.Parallel()
	calls := 0
	await.That(t, "third call", func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	defer func() {
		const want = "not within 20ms: a sign"
		if got := recover(); got != want {
			t.Errorf("it fails with %v, want %q", got, want)
		}
	}()
	await.Within(failing{t}, 20*time.Millisecond, "a sign", func() bool { return false })
}
