package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
	cdx "github.com/CycloneDX/cyclonedx-go"
)

const tag = "v0.1.0" // that CHANGELOG.md describes

// newKey writes a key, with a password or without one if that is empty, and returns its public half and its file.
func newKey(t *testing.T, password string) (minisign.PublicKey, string) {
	t.Helper()
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := private.MarshalText()
	if err == nil && password != "" {
		text, err = minisign.EncryptKey(password, private)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "release.key")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return public, file
}

// TestRelease makes a release of HEAD for this machine twice, compares the bytes, checks what others check before they use
// it, and runs a scenario with the unpacked program.
func TestRelease(t *testing.T) {
	public, key := newKey(t, "")
	here := runtime.GOOS + "/" + runtime.GOARCH
	var dirs []string
	for _, name := range []string{"one", "two"} {
		dir := filepath.Join(t.TempDir(), name)
		var stdout, stderr strings.Builder
		if code := run(t.Context(), []string{"--tag", tag, "--dry-run", "--out", dir, "--key", key, "--platforms", here}, &stdout, &stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		dirs = append(dirs, dir)
	}
	archive := fmt.Sprintf("muster_%s_%s_%s.tar.gz", strings.TrimPrefix(tag, "v"), runtime.GOOS, runtime.GOARCH)
	files := identical(t, dirs[0], dirs[1])
	verify(t, files, public)
	if notes := string(files["release-notes.md"]); !strings.Contains(notes, "### The library") || strings.Contains(notes, "## "+tag) {
		t.Errorf("the notes are not the section of CHANGELOG.md: %.200s", notes)
	}

	program := unpack(t, files[archive])
	t.Run("version", func(t *testing.T) { shows(t, program, "muster", "muster-defender", "muster-nodes") })
	t.Run("components", func(t *testing.T) {
		listed(t, archive, files, "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2", "modernc.org/sqlite", "github.com/aws/aws-sdk-go-v2")
	})
	t.Run("images", func(t *testing.T) { imaged(t, files) })
	t.Run("charts", func(t *testing.T) { packaged(t, files) })
	t.Run("scenario", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(program, "muster"), "up", "--scenario", "scale-up", "--busy")
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// identical returns the files of a directory, which must be those of the other one, byte by byte.
func identical(t *testing.T, one, two string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := os.ReadDir(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		content, err := os.ReadFile(filepath.Join(one, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(filepath.Join(two, n.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, again) {
			t.Errorf("%s is not the same when it is made again", n.Name())
		}
		files[n.Name()] = content
		t.Logf("%s: %d bytes", n.Name(), len(content))
	}
	return files
}

// verify checks the signature of the checksums, and the checksums of all other files.
func verify(t *testing.T, files map[string][]byte, public minisign.PublicKey) {
	t.Helper()
	if !minisign.Verify(public, files[checksums], files[checksums+".minisig"]) {
		t.Error("the signature is not of the checksums")
	}
	if minisign.Verify(public, append(bytes.Clone(files[checksums]), '\n'), files[checksums+".minisig"]) {
		t.Error("the signature is of anything")
	}
	lines := strings.Split(strings.TrimSpace(string(files[checksums])), "\n")
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name])); got != sum {
			t.Errorf("%s has the checksum %s, and not %s", name, got, sum)
		}
	}
	if len(lines) != len(files)-2 {
		t.Errorf("%d checksums of %d files", len(lines), len(files))
	}
}

// unpack unpacks an archive and returns the directory.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), content, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range documents {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	return dir
}

// shows checks that programs say which tag and revision they are of.
func shows(t *testing.T, dir string, programs ...string) {
	revision, err := git(t.Context(), ".", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, program), "--version").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", program, err, out)
		}
		t.Logf("%s", bytes.TrimSpace(out))
		for _, want := range []string{tag, "revision " + revision[:12]} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s --version says %q, without %s", program, out, want)
			}
		}
		if strings.Contains(string(out), "with changes") {
			t.Errorf("%s --version says %q, but it was built of a commit", program, out)
		}
	}
}

// listed checks that the list of components is of the archive, and has what go.mod requires.
func listed(t *testing.T, archive string, files map[string][]byte, names ...string) {
	components := componentsIn(t, archive, files)
	required, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(required, &mod); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, m := range mod.Require {
		versions[m.Path] = m.Version
	}
	for _, name := range names {
		if !slices.ContainsFunc(components, func(c cdx.Component) bool { return c.Name == name && c.Version == versions[name] && c.Hashes != nil }) {
			t.Errorf("the list lacks %s %s with its hash", name, versions[name])
		}
	}
	t.Logf("%s: %d components", archive, len(components))
}

// componentsIn returns the components of an archive, whose list must name it by its checksum.
func componentsIn(t *testing.T, archive string, files map[string][]byte) []cdx.Component {
	t.Helper()
	list := strings.TrimSuffix(strings.TrimSuffix(archive, ".tar"), ".tar.gz") + ".cdx.json"
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(files[list]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatalf("%s: %v", list, err)
	}
	if hash := (*bom.Metadata.Component.Hashes)[0].Value; hash != fmt.Sprintf("%x", sha256.Sum256(files[archive])) {
		t.Errorf("%s is of another archive, with the checksum %s", list, hash)
	}
	return *bom.Components
}

// imaged checks that each image has a program of the release, and a list of what is in the image. TestTheImagesRun in
// deploy/image runs them.
func imaged(t *testing.T, files map[string][]byte) {
	if runtime.GOOS != "linux" {
		t.Skip("images are made with the archives for linux")
	}
	for command, needs := range map[string]string{"muster-defender": "github.com/nats-io/nats.go", "muster-nodes": "github.com/aws/aws-sdk-go-v2"} {
		archive := command + "_" + strings.TrimPrefix(tag, "v") + "_image.tar"
		infos, err := programsOf(files[archive], command)
		if err != nil || len(infos) != 1 || infos[0].Main.Version != tag || infos[0].Path != "github.com/muster-dev/muster/cmd/"+command {
			t.Errorf("%s: %v, programs %v", archive, err, infos)
		}
		listed(t, archive, files, needs)
		roots := slices.ContainsFunc(componentsIn(t, archive, files), func(c cdx.Component) bool { return c.Name == rootsModule && c.Version != "" && c.Hashes != nil })
		if !roots {
			t.Errorf("the list of %s lacks the root certificates", archive)
		}
	}
}

// packaged checks that each chart is there with all of its files but those for tests, in a folder of its name.
func packaged(t *testing.T, files map[string][]byte) {
	charts, err := os.ReadDir("../charts")
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range charts {
		archive := chart.Name() + "-" + strings.TrimPrefix(tag, "v") + ".tgz"
		compressed, err := gzip.NewReader(bytes.NewReader(files[archive]))
		if err != nil {
			t.Errorf("%s: %v", archive, err)
			continue
		}
		found := map[string]bool{}
		if err := eachFile(compressed, func(path string, content []byte) error {
			found[path] = true
			committed, err := os.ReadFile(filepath.Join("../charts", path))
			if err == nil && !bytes.Equal(committed, content) {
				t.Logf("%s in %s is not what lies here: it isn't committed", path, archive)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", archive, err)
		}
		if err := filepath.WalkDir("../charts/"+chart.Name(), func(path string, entry os.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../charts/")
			forTests := strings.HasPrefix(name, chart.Name()+"/ci/")
			if err == nil && !entry.IsDir() && found[name] == forTests {
				t.Errorf("%s has %s: %t", archive, name, found[name])
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if chart.Name() == "muster-nats" && !found["muster-nats/files/accounts.conf"] {
			t.Errorf("%s has no accounts", archive) // a link
		}
	}
}

// TestChartsOfAnotherVersion: a chart that was not raised to the release's version is not released.
func TestChartsOfAnotherVersion(t *testing.T) {
	s := source{dir: "../..", tag: "v9.9.9"}
	if err := addCharts(s, &dist{}); err == nil || !strings.Contains(err.Error(), "set version and appVersion") {
		t.Errorf("got %v", err)
	}
}

// TestReleaseOfATag: without --dry-run a tag must be there, and what is committed after it isn't in the release.
func TestReleaseOfATag(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "-m", "one"}} {
		if _, err := git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	o := options{tag: "v1.2.3", source: dir}
	if _, err := checkOut(t.Context(), o, filepath.Join(t.TempDir(), "a")); err == nil || !strings.Contains(err.Error(), "tag a commit") {
		t.Errorf("got %v", err)
	}
	tagged, err := git(t.Context(), dir, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tag", "v1.2.3"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "-m", "two"}} {
		if _, err := git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := checkOut(t.Context(), o, filepath.Join(t.TempDir(), "b")); err != nil || s.revision != tagged {
		t.Errorf("the revision is %s, %v; want %s", s.revision, err, tagged)
	}
}

func TestOptions(t *testing.T) {
	var stderr strings.Builder
	code := run(t.Context(), []string{"--tag", "1.0", "--platforms", "linux/amd64,plan9/arm"}, io.Discard, &stderr)
	for _, want := range []string{"--tag", "--out", "--key", "plan9/arm"} {
		if code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, without %s: %s", code, want, stderr.String())
		}
	}
}

// TestSign: a key with a password signs with that one, and with no other.
func TestSign(t *testing.T) {
	public, key := newKey(t, "secret")
	d := &dist{}
	d.add("a", []byte("content"))
	if err := d.sign(options{key: key, password: "secret", tag: tag}, source{}); err != nil {
		t.Fatal(err)
	}
	verify(t, d.files, public)
	if err := new(dist).sign(options{key: key, password: "wrong", tag: tag}, source{}); err == nil || !strings.Contains(err.Error(), "MINISIGN_PASSWORD") {
		t.Errorf("a wrong password gives %v", err)
	}
}

func TestNotes(t *testing.T) {
	changes := "# Changelog\n\n## v0.2.0\n\n- two\n\n## v0.1.0 (2026-12-01)\n\n### Added\n\n- one\n"
	if got, err := notesOf(changes, "v0.1.0"); err != nil || got != "### Added\n\n- one\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := notesOf(changes, "v0.3.0"); err == nil || !strings.Contains(err.Error(), "## v0.3.0") {
		t.Errorf("got %v", err)
	}
}

// TestIdentifier: a list's serial number is a UUID of version 8, and differs with what it is of.
func TestIdentifier(t *testing.T) {
	one, two := identifier(sha256.Sum256([]byte("one"))), identifier(sha256.Sum256([]byte("two")))
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if one == two || !form.MatchString(one) {
		t.Errorf("%s, %s", one, two)
	}
}
