package command

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	stamped := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "1a18372aabbccddeeff00"}, {Key: "vcs.time", Value: "2026-11-22T17:00:00Z"}, {Key: "vcs.modified", Value: "true"}}}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"with all stamps", stamped, "v1.2.3 (revision 1a18372aabbc, 2026-11-22T17:00:00Z, with changes, go1.26.8)"},
		{"as go run builds it", &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}}, "(devel) (go1.26.8)"},
		{"without any", nil, "devel"},
	} {
		if got := versionText(tt.info); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
