package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Names of the images that every real node has.
const (
	pauseImage = "docker.io/lab/pause:1"
	podImage   = "docker.io/lab/pod:1"
)

// writeImages writes an archive, as docker save does, of images that hold one program: each
// of them runs it with its own arguments.
func writeImages(path, program string, images map[string][]string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program of the pods: %w", err)
	}
	layer := &archive{}
	layer.add("pod", 0o755, binary)
	files := &archive{}
	files.add("layer.tar", 0o644, layer.end())
	digest := sha256.Sum256(layer.bytes())
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []entry
	for name, args := range images {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": append([]string{"/pod"}, args...), "WorkingDir": "/"},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
		})
		if err != nil {
			return err
		}
		sum := sha256.Sum256(config)
		file := hex.EncodeToString(sum[:]) + ".json"
		files.add(file, 0o644, config)
		manifest = append(manifest, entry{file, []string{name}, []string{"layer.tar"}})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	files.add("manifest.json", 0o644, list)
	all := files.end()
	if err := errors.Join(files.err, layer.err); err != nil {
		return fmt.Errorf("writing images: %w", err)
	}
	return os.WriteFile(path, all, 0o644)
}

// archive is a tar archive in memory, which remembers its first error.
type archive struct {
	buffer bytes.Buffer
	tar    *tar.Writer
	err    error
}

func (a *archive) add(name string, mode int64, text []byte) {
	if a.tar == nil {
		a.tar = tar.NewWriter(&a.buffer)
	}
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))})
	}
	if a.err == nil {
		_, a.err = a.tar.Write(text)
	}
}

func (a *archive) end() []byte {
	if err := a.tar.Close(); a.err == nil {
		a.err = err
	}
	return a.bytes()
}

func (a *archive) bytes() []byte { return a.buffer.Bytes() }
