// Command generate writes the Terraform module of the node plane's AWS resources from the CloudFormation template, so that
// both have the same resources, permissions, alarms and settings. It fails at whatever in the template it has no
// translation for.
//
//	go -C deploy/terraform/generate run .
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// Where the template and the module are, from this directory.
const (
	templateFile = "../../cloudformation/muster.yaml"
	moduleFolder = "../nodes"
)

func main() {
	if err := write(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write() error {
	text, err := os.ReadFile(templateFile)
	if err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	files, err := generate(text)
	if err != nil {
		return fmt.Errorf("translating %s: %w", templateFile, err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(moduleFolder, name), content, 0o644); err != nil {
			return fmt.Errorf("writing the module: %w", err)
		}
	}
	return nil
}
