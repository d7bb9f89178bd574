package partitiontest

import "testing"

// TestOptions: what can't be is told, all of it at once.
func TestOptions(t *testing.T) {
	t.Parallel()
	if err := (Options{}).validate(); err != nil {
		t.Error(err)
	}
	want := "partitiontest: Options.Slots is -1: give 0 for the default, or more\n" +
		"partitiontest: Options.Detection is -1ns: give 0 for the default, or more"
	if err := (Options{Slots: -1, Detection: -1}).validate(); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}
