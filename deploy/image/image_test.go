package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
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
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// made runs the command and returns what it printed.
func made(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("image %s: exit code %d: %s", strings.Join(args, " "), code, stderr.String())
	}
	return strings.TrimSpace(stdout.String())
}

// images reads a layout back as who pulls it does: one entry, an index of images by platform.
func images(t *testing.T, dir string) (v1.Descriptor, map[string]v1.Image) {
	t.Helper()
	idx, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(idx); err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	top, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 {
		t.Fatalf("the layout has %d entries, want 1", len(top.Manifests))
	}
	inner, err := idx.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, m := range list.Manifests {
		if all[m.Platform.String()], err = inner.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return top.Manifests[0], all
}

// unpack writes the root file system of an image to a directory, and returns who owns what in it.
func unpack(t *testing.T, img v1.Image, dir string) map[string]*tar.Header {
	t.Helper()
	files := mutate.Extract(img)
	defer files.Close()
	headers := map[string]*tar.Header{}
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[strings.TrimSuffix(h.Name, "/")] = h
		to := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(to, content, os.FileMode(h.Mode))
			}
		}
		if err == nil {
			err = os.Chmod(to, os.FileMode(h.Mode&0o777))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheImagesRun makes the images for this machine, unpacks them and runs what their entry points name, where that is allowed with
// nothing but the image to see and as the image's user.
func TestTheImagesRun(t *testing.T) {
	for _, tt := range []struct {
		command string
		tried   []string
		want    string
	}{
		{"muster-defender", []string{"schema"}, `"$schema"`},
		{"muster-nodes", []string{"run", "--help"}, "--tick-sec"},
	} {
		t.Run(tt.command, func(t *testing.T) { checkImage(t, tt.command, tt.tried, tt.want) })
	}
}

// checkImage makes a command's image and runs it; tried are arguments with which it says what is wanted.
func checkImage(t *testing.T, command string, tried []string, want string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	printed := made(t, "--command", command, "--out", dir, "--arch", runtime.GOARCH)
	entry, all := images(t, dir)
	if want := shippedName(command) + "@" + entry.Digest.String(); printed != want {
		t.Errorf("printed %s, want %s", printed, want)
	}
	if got := entry.Annotations["io.containerd.image.name"]; got != shippedName(command) {
		t.Errorf("containerd would call it %q, want %s", got, shippedName(command))
	}
	if len(all) != 1 {
		t.Fatalf("there are images for %d platforms, want 1", len(all))
	}
	for _, img := range all {
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		files := unpack(t, img, root)
		checkConfig(t, c, files)
		checkFiles(t, files)
		checkRoots(t, filepath.Join(root, certificates))
		if err := checkStatic(filepath.Join(root, c.Config.Entrypoint[0])); err != nil {
			t.Error(err)
		}
		version := command + " version " + c.Config.Labels["org.opencontainers.image.version"]
		// What follows in parentheses is the build: its revision, if known, and Go's version.
		if out := execute(t, root, c, "--version"); !strings.HasPrefix(out, version+" (") {
			t.Errorf("it says %q, its label %q", out, version)
		}
		if out := execute(t, root, c, c.Config.Cmd...); !strings.Contains(out, command+" [command]") {
			t.Errorf("without arguments it says %q", out)
		}
		if out := execute(t, root, c, tried...); !strings.Contains(out, want) {
			t.Errorf("%v says %q, which lacks %q", tried, out, want)
		}
	}
}

// execute runs the entry point of an unpacked image.
func execute(t *testing.T, root string, c *v1.ConfigFile, args ...string) string {
	t.Helper()
	entry := c.Config.Entrypoint[0]
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, entry), args...)
	if os.Getuid() == 0 {
		if err := os.Chmod(root, 0o755); err != nil { // as the root of a container is
			t.Fatal(err)
		}
		cmd = exec.CommandContext(t.Context(), entry, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		cmd.Dir = c.Config.WorkingDir
	}
	cmd.Env = c.Config.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", entry, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func checkConfig(t *testing.T, c *v1.ConfigFile, files map[string]*tar.Header) {
	t.Helper()
	if c.OS != "linux" || c.Architecture != runtime.GOARCH || c.Config.User != "65532:65532" || c.Config.StopSignal != "SIGTERM" {
		t.Errorf("got %+v", c)
	}
	if len(c.Config.Entrypoint) != 1 || files[strings.TrimPrefix(c.Config.Entrypoint[0], "/")] == nil {
		t.Fatalf("the entry point is %q, the files are %v", c.Config.Entrypoint, files)
	}
	for _, l := range []string{"title", "description", "source", "version"} {
		if c.Config.Labels["org.opencontainers.image."+l] == "" {
			t.Errorf("there is no label %s", l)
		}
	}
}

func checkFiles(t *testing.T, files map[string]*tar.Header) {
	t.Helper()
	for name, h := range files {
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 && name != "tmp" || h.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o, of %v: only /tmp may be written by the image's user", name, h.Uid, h.Gid, h.Mode, h.ModTime)
		}
	}
	if h := files["tmp"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("/tmp is %+v", h)
	}
	if len(files) != len(baseFiles())+1 {
		t.Errorf("there are %d files, want those of the base and the program", len(files))
	}
}

// checkRoots reads the certificates as crypto/x509 does; AWS is verified by one of Amazon's.
func checkRoots(t *testing.T, path string) {
	t.Helper()
	rest, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		subjects = append(subjects, c.Subject.CommonName)
	}
	if len(subjects) < 100 || !slices.Contains(subjects, "Amazon Root CA 1") {
		t.Errorf("there are %d root certificates: %q", len(subjects), subjects)
	}
}

// module writes a small module with a cmd/muster, as a checkout of Muster's.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module example.com/small\n\ngo 1.26.0\n",
		"cmd/muster/main.go": "package main\n\nfunc main() { println(\"small\") }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTheSameSourcesMakeTheSameImage makes it twice, from two directories: what is printed, the layout and the archive have to be the
// same to the bit.
func TestTheSameSourcesMakeTheSameImage(t *testing.T) {
	t.Parallel()
	var digests, sums []string
	for _, arch := range []string{"amd64,arm64", "arm64, amd64"} {
		source, out := module(t), t.TempDir()
		dir, file := filepath.Join(out, "layout"), filepath.Join(out, "image.tar")
		d := made(t, "--command", "muster", "--source", source, "--out", dir, "--arch", arch)
		if again := made(t, "--command", "muster", "--source", source, "--out", file, "--arch", arch); again != d {
			t.Errorf("as a layout it is %s, as an archive %s", d, again)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		digests, sums = append(digests, d), append(sums, fmt.Sprintf("%x", sha256.Sum256(b)))
		if _, all := images(t, dir); len(all) != 2 || all["linux/amd64"] == nil || all["linux/arm64/v8"] == nil {
			t.Errorf("the platforms are %v", all)
		}
	}
	if digests[0] != digests[1] || sums[0] != sums[1] {
		t.Errorf("got digests %q and archives %q", digests, sums)
	}
}

// TestAnArchiveIsALayout unpacks an archive and reads it as a layout.
func TestAnArchiveIsALayout(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	file, dir := filepath.Join(out, "image.tar"), filepath.Join(out, "layout")
	const name = "registry.example.org/fab/muster:v9"
	made(t, "--command", "muster", "--source", module(t), "--out", file, "--arch", runtime.GOARCH, "--name", name)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	entry, _ := images(t, dir)
	if entry.Annotations["io.containerd.image.name"] != name || entry.Annotations["org.opencontainers.image.ref.name"] != "v9" {
		t.Errorf("it is called %v", entry.Annotations)
	}
}

// TestADynamicProgramIsRefused: nothing but the program is in the image.
func TestADynamicProgramIsRefused(t *testing.T) {
	t.Parallel()
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(shell); err == nil || !strings.Contains(err.Error(), "loader") {
		t.Errorf("%s: %v", shell, err)
	}
	if err := checkStatic("image.go"); err == nil {
		t.Error("a text is taken for a program")
	}
}

func TestEveryFaultOfTheFlagsIsTold(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"":                              {"--out is missing", `--command "" is unknown`},
		"--command mustard --out x.tar": {"muster, muster-defender, muster-nodes"},
		"--out . --arch s390x,amd64":    {"--out . is there already", `--arch "s390x" is unknown`},
		"--out x.tar --arch , --name muster --source /nowhere": {"--arch names none", "--name:", "--source /nowhere"},
		"--out x.tar more": {"there are only flags"},
		"--no-such-flag":   {"flag provided but not defined"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d", args, code, exitUsage)
		}
		for _, w := range want {
			if !strings.Contains(stderr.String(), w) {
				t.Errorf("%q: nothing says %q: %s", args, w, stderr.String())
			}
		}
	}
	if code := run(t.Context(), []string{"--command", "muster", "--out", filepath.Join(t.TempDir(), "x.tar"), "--source", t.TempDir()}, io.Discard, io.Discard); code != exitUsage {
		t.Errorf("a directory without a module: exit code %d", code)
	}
}

func TestWhatDoesNotCompileLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	source, out := module(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "cmd", "muster", "main.go"), []byte("package main\n\nfunc main() { no }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"--command", "muster", "--source", source, "--out", filepath.Join(out, "x.tar")}, io.Discard, &stderr); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if left, err := os.ReadDir(out); err != nil || len(left) > 0 || !strings.Contains(stderr.String(), "undefined: no") {
		t.Errorf("left %v, %v; said %s", left, err, stderr.String())
	}
}

// TestTheOverlaysUseTheImages: its name, its user and its ports.
func TestTheOverlaysUseTheImages(t *testing.T) {
	t.Parallel()
	for overlay, manifest := range map[string]string{"nodes": "daemon.yaml", "defender": "defender.yaml"} {
		command := "muster-" + overlay
		name, tag, _ := strings.Cut(shippedName(command), ":")
		read := func(file string) string {
			b, err := os.ReadFile(filepath.Join("..", "kubernetes", overlay, file))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		if k := read("kustomization.yaml"); !strings.Contains(k, "newName: "+name+" ") || !strings.Contains(k, "newTag: "+tag+"\n") {
			t.Errorf("%s: the image is not %s", overlay, shippedName(command))
		}
		m := read(manifest)
		if !strings.Contains(m, "image: "+command+"\n") {
			t.Errorf("%s: another image than %s", overlay, command)
		}
		if !strings.Contains(m, "runAsUser: "+userID+",") {
			t.Errorf("%s: another user than %s", overlay, userID)
		}
		used := regexp.MustCompile(`containerPort: (\d+)`).FindAllStringSubmatch(m, -1)
		if len(used) == 0 {
			t.Errorf("%s: no port", overlay)
		}
		for _, p := range used {
			if commands[command].port != p[1]+"/tcp" {
				t.Errorf("%s: port %s is not exposed", overlay, p[1])
			}
		}
	}
}
