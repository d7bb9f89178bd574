package linktest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxExports is how many package-level names a user of package partition has to look through.
const maxExports = 60

func TestPartitionExportsFewNames(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../partition/*.go")
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, exports(f)...)
	}

	if len(names) > maxExports || !slices.Contains(names, "Worker") {
		slices.Sort(names)
		t.Errorf("partition exports %d names, want Worker and at most %d: %v", len(names), maxExports, names)
	}
}

// exports returns the exported package-level names of a file, without methods.
func exports(f *ast.File) []string {
	var names []string
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}
