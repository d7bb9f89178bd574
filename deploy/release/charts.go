package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var chartVersion = regexp.MustCompile(`(?m)^version: (\S+)$`)

// addCharts adds each Helm chart as `helm package` makes it.
func addCharts(s source, d *dist) error {
	root := filepath.Join(s.dir, "deploy", "charts")
	charts, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("finding the charts: %w", err)
	}
	for _, chart := range charts {
		name, version := chart.Name(), strings.TrimPrefix(s.tag, "v")
		about, err := os.ReadFile(filepath.Join(root, name, "Chart.yaml"))
		if err != nil {
			return fmt.Errorf("reading the chart %s: %w", name, err)
		}
		if m := chartVersion.FindSubmatch(about); m == nil || string(m[1]) != version {
			return fmt.Errorf("the chart %s is not of version %s: set version and appVersion in its Chart.yaml", name, version)
		}
		files, err := chartFiles(root, name)
		if err != nil {
			return fmt.Errorf("reading the chart %s: %w", name, err)
		}
		content, err := tarball(files, s.committed)
		if err != nil {
			return err
		}
		d.add(fmt.Sprintf("%s-%s.tgz", name, version), content)
	}
	return nil
}

// chartFiles are a chart's files, in a folder of its name. ci, which .helmignore excludes, has values for the tests alone.
func chartFiles(root, chart string) ([]archived, error) {
	var files []archived
	err := fs.WalkDir(os.DirFS(root), chart, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "ci" {
			return fs.SkipDir
		}
		if !entry.IsDir() { // a link, as to the accounts of NATS, has its file's content
			files = append(files, archived{name: path, path: filepath.Join(root, filepath.FromSlash(path))})
		}
		return nil
	})
	return files, err
}
