package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// write writes the layout, or an archive of it, completely or not at all.
func write(o options, idx v1.ImageIndex) error {
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".muster-image-") // beside it, so that it can be renamed
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made := filepath.Join(dir, "layout")
	if err := writeLayout(made, o.name, idx); err != nil {
		return err
	}
	if o.archive() {
		from := made
		made = filepath.Join(dir, "archive.tar")
		if err := archive(made, os.DirFS(from)); err != nil {
			return err
		}
	}
	return os.Rename(made, out)
}

// writeLayout writes an image layout with one entry, by the names that containerd and others read.
func writeLayout(dir, ref string, idx v1.ImageIndex) error {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return err
	}
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return p.AppendIndex(idx, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          tag.Name(),
		"org.opencontainers.image.ref.name": tag.TagStr(),
	}))
}

// archive writes files as a tar archive that tells nothing of when and by whom.
func archive(path string, files fs.FS) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return archiveOne(w, files, name)
	})
	return errors.Join(err, w.Close())
}

func archiveOne(w *tar.Writer, files fs.FS, name string) error {
	in, err := files.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := io.Copy(w, in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
