package main

import (
	"crypto/rand"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

const checksums = "checksums.txt"

// dist are the files of a release.
type dist struct {
	dir   string
	names []string
	files map[string][]byte
}

func (d *dist) add(name string, content []byte) {
	if d.files == nil {
		d.files = map[string][]byte{}
	}
	d.names = append(d.names, name)
	d.files[name] = content
}

// addBundle adds the archive of a bundle, and the list of its components.
func (d *dist) addBundle(b bundle, s source, p platform, files []archived, infos []*buildinfo.BuildInfo) error {
	name := fmt.Sprintf("%s_%s_%s_%s", b.name, strings.TrimPrefix(s.tag, "v"), p.os, p.arch)
	pack, ending := tarball, ".tar.gz"
	if p.os == "windows" || b.rename != "" { // Lambda takes a .zip
		pack, ending = zipped, ".zip"
	}
	content, err := pack(files, s.committed)
	if err != nil {
		return err
	}
	components, err := componentsOf(name+ending, content, s, infos)
	if err != nil {
		return err
	}
	d.add(name+ending, content)
	d.add(name+".cdx.json", components)
	return nil
}

// sign adds the checksums of all files, their signature, and for a key of this run its public half.
func (d *dist) sign(o options, s source) error {
	var sums strings.Builder
	for _, name := range d.names {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(d.files[name]), name)
	}
	var private minisign.PrivateKey
	var err error
	if o.key != "" {
		if private, err = readKey(o); err != nil {
			return err
		}
	} else {
		var public minisign.PublicKey
		if public, private, err = minisign.GenerateKey(rand.Reader); err != nil {
			return fmt.Errorf("making a key: %w", err)
		}
		text, err := public.MarshalText()
		if err != nil {
			return fmt.Errorf("writing the public key: %w", err)
		}
		d.add("dry-run.pub", append(text, '\n'))
	}
	d.add(checksums, []byte(sums.String()))
	// Its comment says what was signed, and no time: the same release has the same signature.
	comment := fmt.Sprintf("muster %s %s", s.tag, s.revision)
	d.add(checksums+".minisig", minisign.SignWithComments(private, []byte(sums.String()), comment, "signature of muster's "+checksums))
	return nil
}

// readKey reads the key, which may have a password.
func readKey(o options) (key minisign.PrivateKey, err error) {
	text, err := os.ReadFile(o.key)
	if err != nil {
		return key, fmt.Errorf("reading the key: %w", err)
	}
	if !minisign.IsEncrypted(text) {
		if err := key.UnmarshalText(text); err != nil {
			return key, fmt.Errorf("reading the key %s: %w: give a file that minisign -G made", o.key, err)
		}
		return key, nil
	}
	if key, err = minisign.DecryptKey(o.password, text); err != nil {
		return key, fmt.Errorf("reading the key %s: %w: MINISIGN_PASSWORD must be its password", o.key, err)
	}
	return key, nil
}

// write writes the files and returns their paths.
func (d *dist) write() ([]string, error) {
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, fmt.Errorf("writing the release: %w", err)
	}
	var out []string
	for _, name := range d.names {
		path := filepath.Join(d.dir, name)
		if err := os.WriteFile(path, d.files[name], 0o644); err != nil {
			return nil, fmt.Errorf("writing the release: %w", err)
		}
		out = append(out, path)
	}
	return out, nil
}
