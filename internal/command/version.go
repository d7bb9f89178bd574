package command

import (
	"runtime/debug"
	"strings"
)

// versionText says which version, revision and date a binary was built of, as far as
// that was stamped: "go run" stamps none of them.
func versionText(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	stamped := map[string]string{}
	for _, s := range info.Settings {
		stamped[s.Key] = s.Value
	}
	version := info.Main.Version
	if version == "" {
		version = "devel"
	}
	var more []string
	if r := stamped["vcs.revision"]; r != "" {
		more = append(more, "revision "+r[:min(len(r), 12)])
	}
	if at := stamped["vcs.time"]; at != "" {
		more = append(more, at)
	}
	if stamped["vcs.modified"] == "true" {
		more = append(more, "with changes")
	}
	if info.GoVersion != "" {
		more = append(more, info.GoVersion)
	}
	if len(more) == 0 {
		return version
	}
	return version + " (" + strings.Join(more, ", ") + ")"
}
