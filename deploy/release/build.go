package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bundle is what an archive has: programs, and files of the repository beside them.
type bundle struct {
	name     string   // the archive's name begins with it
	programs []string // folders in cmd
	tags     string
	rename   string // what the only program is called; empty: as its folder
	onlyOn   string // system; empty: each
}

var bundles = []bundle{
	{name: "muster", programs: []string{"muster", "muster-defender", "muster-nodes"}},
	{name: "muster-lambda", programs: []string{"muster-lambda"}, tags: "lambda.norpc", rename: "bootstrap", onlyOn: "linux"}, // as Lambda's runtime wants it
}

var documents = []string{"LICENSE", "README.md", "CHANGELOG.md"}

// buildPlatform builds the bundles for a platform and adds their archives and components to the files of the release.
func buildPlatform(ctx context.Context, s source, p platform, work string, d *dist) error {
	for _, b := range bundles {
		if b.onlyOn != "" && b.onlyOn != p.os {
			continue
		}
		var files []archived
		var infos []*buildinfo.BuildInfo
		for _, program := range b.programs {
			path, err := compile(ctx, s, p, b, program, work)
			if err != nil {
				return err
			}
			info, err := buildinfo.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading what %s is made of: %w", program, err)
			}
			if info.Main.Version != s.tag {
				return fmt.Errorf("%s says that it is %s, and not %s: its build has not seen the tag", program, info.Main.Version, s.tag)
			}
			infos = append(infos, info)
			files = append(files, archived{name: filepath.Base(path), path: path, program: true})
		}
		for _, name := range documents {
			files = append(files, archived{name: name, path: filepath.Join(s.dir, name)})
		}
		if err := d.addBundle(b, s, p, files, infos); err != nil {
			return err
		}
	}
	return nil
}

// compile builds a program without C and without what depends on the machine: its directories, and the instruction set
// above the architecture's least. Go itself writes the tag and the revision into it.
func compile(ctx context.Context, s source, p platform, b bundle, program, work string) (string, error) {
	name := program
	if b.rename != "" {
		name = b.rename
	}
	if p.os == "windows" {
		name += ".exe"
	}
	path := filepath.Join(work, b.name, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=true", "-trimpath", "-tags", b.tags, "-ldflags", "-s -w -buildid=", "-o", path, "./cmd/"+program)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", program, err, strings.TrimSpace(string(out)))
	}
	return path, nil
}
