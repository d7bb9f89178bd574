package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// imageCommands are those whose images a cluster runs.
var imageCommands = []string{"muster-defender", "muster-nodes"}

// rootsModule has the root certificates of an image, beside the program.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// addImages adds the images of the linux platforms, one archive per command with all architectures, and their components.
// deploy/image of the tag makes them.
func addImages(ctx context.Context, s source, platforms []platform, work string, d *dist) error {
	var arch []string
	for _, p := range platforms {
		if p.os == "linux" {
			arch = append(arch, p.arch)
		}
	}
	if len(arch) == 0 {
		return nil
	}
	roots, err := goCommand(ctx, filepath.Join(s.dir, "deploy", "image"), "list", "-m", "-f", "{{.Version}} {{.Sum}}", rootsModule)
	if err != nil {
		return fmt.Errorf("finding the version of the root certificates: %w", err)
	}
	version, sum, _ := strings.Cut(roots, " ")

	for _, command := range imageCommands {
		path := filepath.Join(work, command+".tar")
		name := "registry.example.com/" + command + ":" + s.tag // who pushes it gives it another
		if _, err := goCommand(ctx, filepath.Join(s.dir, "deploy", "image"), "run", ".", "--command", command, "--out", path,
			"--arch", strings.Join(arch, ","), "--name", name, "--source", s.dir); err != nil {
			return fmt.Errorf("making the image of %s: %w", command, err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the image of %s: %w", command, err)
		}
		infos, err := programsOf(content, command)
		if err != nil {
			return fmt.Errorf("reading the image of %s: %w", command, err)
		}
		if len(infos) != len(arch) {
			return fmt.Errorf("the image of %s has %d programs, and not %d", command, len(infos), len(arch))
		}
		for _, info := range infos {
			if info.Main.Version != s.tag {
				return fmt.Errorf("the image of %s says that it is %s, and not %s: its build has not seen the tag", command, info.Main.Version, s.tag)
			}
		}

		archive := fmt.Sprintf("%s_%s_image", command, strings.TrimPrefix(s.tag, "v"))
		components, err := componentsOf(archive+".tar", content, s, infos, module{rootsModule, version, sum})
		if err != nil {
			return err
		}
		d.add(archive+".tar", content)
		d.add(archive+".cdx.json", components)
	}
	return nil
}

// goCommand runs the go command in a module's directory, and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A build states its tag, whatever flags this machine has set: an empty GOFLAGS would leave those in force.
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=true", "GOWORK=")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// programsOf returns what the programs of a name in an archive of an image layout are made of: one for each architecture. It
// reads the image itself, so that its list of components is of what runs.
func programsOf(image []byte, name string) ([]*buildinfo.BuildInfo, error) {
	var infos []*buildinfo.BuildInfo
	err := eachFile(bytes.NewReader(image), func(path string, blob []byte) error {
		compressed := bytes.HasPrefix(blob, []byte{0x1f, 0x8b}) // by gzip: an index, a manifest and a configuration are not
		if !strings.HasPrefix(path, "blobs/") || !compressed {
			return nil
		}
		layer, err := gzip.NewReader(bytes.NewReader(blob))
		if err != nil {
			return err
		}
		return eachFile(layer, func(path string, program []byte) error {
			if path != name {
				return nil
			}
			info, err := buildinfo.Read(bytes.NewReader(program))
			infos = append(infos, info)
			return err
		})
	})
	slices.SortFunc(infos, func(a, b *buildinfo.BuildInfo) int { return strings.Compare(a.String(), b.String()) })
	return infos, err
}

// eachFile calls do with each file of a tar archive.
func eachFile(archive io.Reader, do func(path string, content []byte) error) error {
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := do(header.Name, content); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}
