package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Who runs in the image: the user that deploy/kubernetes names as well.
const (
	userID   = "65532"
	userName = "muster"
)

// certificates is where Go, and most else, looks for root certificates.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// command is what runs in an image.
type command struct {
	description string
	port        string // that it listens on as deployed; empty: none that is known
}

// commands are those that have images, by the name of their binary.
var commands = map[string]command{
	"muster-defender": {"Fault detection for process chambers", "8081/tcp"},
	"muster-nodes":    {"Scales a K3s cluster on EC2", "9808/tcp"},
	"muster":          {"All of Muster, with the simulated region and the scenarios", ""},
}

func commandNames() []string { return slices.Sorted(maps.Keys(commands)) }

// index puts together an image for each binary of a command, and the index of them that is pulled by one name.
func index(name string, all []binary) (v1.ImageIndex, error) {
	base, err := layer(baseFiles())
	if err != nil {
		return nil, fmt.Errorf("layer of the base: %w", err)
	}
	idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range all {
		img, err := image(name, b, base)
		if err != nil {
			return nil, fmt.Errorf("linux/%s: %w", b.arch, err)
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform(b.arch)}})
	}
	annotated, ok := mutate.Annotations(idx, labels(name, all[0])).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotating the index made no index")
	}
	return annotated, nil
}

func platform(arch string) *v1.Platform {
	p := &v1.Platform{OS: "linux", Architecture: arch}
	if arch == "arm64" {
		p.Variant = "v8"
	}
	return p
}

func image(name string, b binary, base v1.Layer) (v1.Image, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	top, err := layer([]file{{name: name, mode: 0o755, content: program}})
	if err != nil {
		return nil, fmt.Errorf("layer of the program: %w", err)
	}
	created := v1.Time{Time: b.committed}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "root certificates, user, /tmp"}},
		mutate.Addendum{Layer: top, History: v1.History{Created: created, CreatedBy: name}})
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	p := platform(b.arch)
	c.OS, c.Architecture, c.Variant, c.Created = p.OS, p.Architecture, p.Variant, created
	c.Config = v1.Config{
		User: userID + ":" + userID, Entrypoint: []string{"/" + name}, Cmd: []string{"--help"}, WorkingDir: "/",
		Env: []string{"PATH=/"}, Labels: labels(name, b), StopSignal: "SIGTERM",
	}
	if port := commands[name].port; port != "" {
		c.Config.ExposedPorts = map[string]struct{}{port: {}}
	}
	return mutate.ConfigFile(img, c)
}

// labels tell what the image is and what it was made from.
func labels(name string, b binary) map[string]string {
	const prefix = "org.opencontainers.image."
	l := map[string]string{
		prefix + "title":       name,
		prefix + "description": commands[name].description,
		prefix + "source":      "https://github.com/muster-dev/muster",
		prefix + "version":     b.version,
	}
	if b.revision != "" {
		l[prefix+"revision"] = b.revision
	}
	return l
}

// file is one of a layer; a directory has no content.
type file struct {
	name    string
	mode    int64
	content []byte
}

// baseFiles are what a static program needs of a system: root certificates, a user by name, room for temporary files.
func baseFiles() []file {
	return []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\n%s:x:%s:\n", userName, userID)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\n%[1]s:x:%[2]s:%[2]s:%[1]s:/:/sbin/nologin\n", userName, userID)},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: certificates, mode: 0o644, content: roots()},
		{name: "tmp/", mode: 0o1777},
	}
}

// roots returns Mozilla's root certificates as PEM. One that is trusted only for older certificates is left out, since a file can't
// say so.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a buffer takes everything
		}
	}
	return b.Bytes()
}

// layer makes a layer of files that all belong to root and are as old as Unix time is.
func layer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if f.content == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
