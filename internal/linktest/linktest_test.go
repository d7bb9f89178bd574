package linktest

import (
	"slices"
	"strings"
	"testing"
)

// TestFaults: what each kind of fault looks like.
func TestFaults(t *testing.T) {
	t.Parallel()
	main := linked{ImportPath: module + "/cmd/muster-x"}
	own := func(path string) linked {
		p := linked{ImportPath: module + "/" + path, Module: &struct {
			Path string
			Main bool
		}{module, true}}
		main.Imports = append(main.Imports, p.ImportPath)
		return p
	}
	other := func(path, of string) linked {
		main.Imports = append(main.Imports, path)
		return linked{ImportPath: path, Module: &struct {
			Path string
			Main bool
		}{of, false}}
	}
	standard := func(path string) linked {
		main.Imports = append(main.Imports, path)
		return linked{ImportPath: path, Standard: true}
	}
	allowed := Binary{Own: []string{"nodes"}, Modules: []string{"example.com/a", "example.com/b/..."}}
	within := []linked{own("nodes"), other("example.com/a/x", "example.com/a"), other("example.com/b/c", "example.com/b/c"), standard("fmt")}
	for _, tt := range []struct {
		name  string
		rig   bool
		links []linked
		want  string // "" if nothing is wrong
	}{
		{"what it may", false, nil, ""},
		{"another package of ours", false, []linked{own("defender")}, module + "/defender, which is not among its own packages; imported by cmd/muster-x"},
		{"another module", false, []linked{other("example.com/d/x", "example.com/d")}, "example.com/d/x, which is of module example.com/d that is not among its modules"},
		{"a scenario", false, []linked{own("e2e/audit")}, "not for production"},
		{"the simulator", false, []linked{own("nodes/sim")}, "not for production"},
		{"the NATS server", false, []linked{other("github.com/nats-io/nats-server/v2/server", "github.com/nats-io/nats-server/v2")}, "not for production"},
		{"testing", true, []linked{standard("testing")}, "for tests only"},
		{"test machinery", true, []linked{own("internal/component")}, "for tests only"},
	} {
		b := allowed
		b.Rig = tt.rig
		got := b.faults(slices.Concat(within, tt.links, []linked{main}))
		if tt.want == "" && len(got) > 0 {
			t.Errorf("%s: %q", tt.name, got)
		}
		if tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%s: %q, want one fault with %q", tt.name, got, tt.want)
		}
	}

	inner, outer := own("broker"), own("e2e")
	outer.Imports = []string{inner.ImportPath}
	main.Imports = []string{outer.ImportPath}
	got := allowed.faults(slices.Concat(within, []linked{inner, outer, main}))
	if len(got) != 1 || !strings.Contains(got[0], "e2e") {
		t.Errorf("what a scenario imports: %q, want only the scenario", got)
	}

	if got := allowed.faults([]linked{within[0], within[1], main}); len(got) != 1 || !strings.Contains(got[0], "no longer links example.com/b/...") {
		t.Errorf("a list that allows too much: %q", got)
	}
}

// TestContentFaults: size and test hooks.
func TestContentFaults(t *testing.T) {
	t.Parallel()
	large := make([]byte, 2e6+1)
	if got := (Binary{MaxMB: 2}).contentFaults(large); len(got) != 1 || !strings.Contains(got[0], "2.0 MB") {
		t.Errorf("a byte too many: %q", got)
	}
	if got := (Binary{MaxMB: 3}).contentFaults(large); len(got) != 0 {
		t.Errorf("small enough: %q", got)
	}
	hooked := []byte("x MUSTER_SIMULATED_CLOCK x")
	if got := (Binary{MaxMB: 1}).contentFaults(hooked); len(got) != 1 || !strings.Contains(got[0], "test hook") {
		t.Errorf("a hook in production: %q", got)
	}
	if got := (Binary{MaxMB: 1, Rig: true}).contentFaults(hooked); len(got) != 0 {
		t.Errorf("a hook in muster: %q", got)
	}
}
