package nodes

import (
	"errors"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/misuse"
)

func TestErrorsAreRedactedButNotWrongUsage(t *testing.T) {
	t.Parallel()
	if err := redactedError(errors.New("reading http://u:hunter2@prom: refused")); strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	plain := errors.New("plain")
	if err := redactedError(plain); !errors.Is(err, plain) {
		t.Errorf("an error that holds no secret became %v", err)
	}
	wrong := &misuse.Error{Err: errors.New("K3S_TOKEN_REF=\"ssm\": write a reference")}
	if err := redactedError(wrong); err.Error() != wrong.Error() {
		t.Errorf("wrong usage became %v", err)
	}
}
