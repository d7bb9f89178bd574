// Package mkdocs has the configuration that makes a site of the documentation, and its test.
package mkdocs
