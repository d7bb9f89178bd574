package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"slices"
	"strings"
)

// checked is what the types of a tree say.
type checked struct {
	packages map[string]*types.Package // without tests, by import path
	arrows   map[string]arrows         // between the files of a package, by directory
	uses     uses
}

// checker checks the packages of a tree, each after those that it imports.
type checker struct {
	tree     *tree
	importer types.Importer // of the standard library
	units    map[string]*unit
	out      *checked
}

var errNotRead = errors.New("not read: it is of another module")

// check checks the types of a tree. A third-party package counts as empty, so errors are
// expected and ignored: go/types records what it can resolve.
func check(t *tree) *checked {
	// Packages such as net are read without C; the cgo tool would have to run for it.
	build.Default.CgoEnabled = false

	c := &checker{
		tree:     t,
		importer: importer.ForCompiler(t.fset, "source", nil),
		units:    make(map[string]*unit),
		out: &checked{
			packages: make(map[string]*types.Package),
			arrows:   make(map[string]arrows),
			uses:     make(uses),
		},
	}
	all := unitsOf(t)
	for _, u := range all {
		if u.name != "main" && u.larger(c.units[u.path]) {
			c.units[u.path] = u
		}
	}
	for _, u := range all {
		c.checkUnit(u)
	}
	return c.out
}

// checkUnit checks a package alone, with its tests, and then its external tests.
func (c *checker) checkUnit(u *unit) {
	tested, _ := c.base(u)
	if len(u.tests) > 0 {
		tested = c.record(u.path, slices.Concat(u.files, u.tests), c)
	}
	if len(u.external) > 0 {
		c.record(u.path+"_test", u.external, override{c, u.path, tested})
	}
}

// base returns a package without its tests. Only one package of a directory can be imported.
func (c *checker) base(u *unit) (*types.Package, error) {
	if c.units[u.path] == u {
		return c.Import(u.path)
	}
	return c.checkFiles(u), nil
}

// checkFiles checks a package without its tests.
func (c *checker) checkFiles(u *unit) *types.Package {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	pkg := c.checkInto(u.path, u.files, c, info)
	c.out.arrows[u.dir] = c.out.arrows[u.dir].with(c.tree, u, info)
	c.out.uses.record(c.tree, u.path, info)
	return pkg
}

// record checks files for the names that they use.
func (c *checker) record(path string, files []*source, imp types.Importer) *types.Package {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	pkg := c.checkInto(path, files, imp, info)
	c.out.uses.record(c.tree, path, info)
	return pkg
}

func (c *checker) checkInto(path string, files []*source, imp types.Importer, info *types.Info) *types.Package {
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	config := types.Config{Importer: imp, FakeImportC: true, Error: func(error) {}}
	pkg, _ := config.Check(path, c.tree.fset, syntax, info)
	return pkg
}

// Import returns a package of the tree or of the standard library.
func (c *checker) Import(path string) (*types.Package, error) {
	if pkg, ok := c.out.packages[path]; ok {
		if pkg == nil {
			return nil, fmt.Errorf("%s imports itself", path)
		}
		return pkg, nil
	}
	if u := c.units[path]; u != nil {
		c.out.packages[path] = nil // while it is checked
		c.out.packages[path] = c.checkFiles(u)
		return c.out.packages[path], nil
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		return nil, errNotRead
	}
	return c.importer.Import(path)
}

// override is a checker that returns one package with the tests in it.
type override struct {
	*checker
	path   string
	tested *types.Package
}

// Import returns the tested package, or what the checker has.
func (o override) Import(path string) (*types.Package, error) {
	if path == o.path {
		return o.tested, nil
	}
	return o.checker.Import(path)
}
