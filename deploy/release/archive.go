package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"time"
)

// archived is a file that goes into an archive.
type archived struct {
	name, path string
	program    bool
}

func (a archived) mode() os.FileMode {
	if a.program {
		return 0o755
	}
	return 0o644
}

// tarball returns a .tar.gz of files that were all written at a time.
func tarball(files []archived, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
		header := &tar.Header{Name: f.name, Mode: int64(f.mode()), Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	return out.Bytes(), nil
}

// zipped returns a .zip of files that were all written at a time.
func zipped(files []archived, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode())
		to, err := w.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
		if _, err := io.Copy(to, bytes.NewReader(content)); err != nil {
			return nil, fmt.Errorf("archiving %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	return out.Bytes(), nil
}
