package main

import (
	"cmp"
	"go/ast"
	"slices"
)

// typeFigures are about one type.
type typeFigures struct {
	name    string // with its package's
	dir     string
	methods int
	fields  int             // of a struct; an embedded type is one
	files   map[string]bool // that declare it or a method of it
}

// measureTypes measures the types that some files declare at package level.
func measureTypes(files []*source) []*typeFigures {
	types := make(typeIndex)
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if receiver := receiverType(d); receiver != "" {
					t := types.of(f, receiver)
					t.methods++
					t.files[f.path] = true
				}
			case *ast.GenDecl:
				types.declare(f, d)
			}
		}
	}
	return types.sorted()
}

// typeIndex finds a type by its directory, its package and its name.
type typeIndex map[[3]string]*typeFigures

func (x typeIndex) of(f *source, name string) *typeFigures {
	pkg := f.syntax.Name.Name
	key := [3]string{f.dir(), pkg, name}
	if x[key] == nil {
		x[key] = &typeFigures{name: pkg + "." + name, dir: f.dir(), files: make(map[string]bool)}
	}
	return x[key]
}

// declare counts the fields of the structs in a declaration.
func (x typeIndex) declare(f *source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		t := x.of(f, s.Name.Name)
		t.files[f.path] = true
		body, ok := s.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range body.Fields.List {
			t.fields += max(1, len(field.Names))
		}
	}
}

// sorted returns the types by directory and name.
func (x typeIndex) sorted() []*typeFigures {
	out := make([]*typeFigures, 0, len(x))
	for _, t := range x {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *typeFigures) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name))
	})
	return out
}

// largest returns the n types that have the most of what a function counts.
func largest(types []*typeFigures, n int, count func(*typeFigures) int) []*typeFigures {
	out := slices.Clone(types)
	slices.SortStableFunc(out, func(a, b *typeFigures) int { return cmp.Compare(count(b), count(a)) })
	return out[:min(n, len(out))]
}

// scattered returns the types in more than one file.
func scattered(types []*typeFigures) []*typeFigures {
	return slices.DeleteFunc(slices.Clone(types), func(t *typeFigures) bool { return len(t.files) < 2 })
}

// receiverType is the name of the type that a method is declared on, empty for a function.
func receiverType(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	for at := fn.Recv.List[0].Type; ; {
		switch t := at.(type) {
		case *ast.StarExpr:
			at = t.X
		case *ast.ParenExpr:
			at = t.X
		case *ast.IndexExpr:
			at = t.X
		case *ast.IndexListExpr:
			at = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}
