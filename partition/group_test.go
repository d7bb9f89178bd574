package partition

import (
	"strings"
	"testing"
)

func TestGroupProvision(t *testing.T) {
	t.Parallel()
	t.Run("the name of another group is an error", func(t *testing.T) {
		t.Parallel()
		err := Open(nil, "orders").Provision(t.Context(), Config{Name: "returns", Stream: "RETURNS", Subject: "returns.*"})
		if err == nil || !strings.Contains(err.Error(), `"returns"`) {
			t.Errorf("the error is %v, want one that names the other group", err)
		}
	})
}
