package main

import (
	"go/types"
	"slices"
)

// use says who names something: files of packages other than its own.
type use struct{ byCode, byTests bool }

// uses holds the users of package-level names, by import path and name.
type uses map[[2]string]use

// record notes the names of other packages that a checked package uses. A package's own
// external tests are another package.
func (u uses) record(t *tree, path string, info *types.Info) {
	for id, obj := range info.Uses {
		pkg := obj.Pkg()
		if pkg == nil || pkg.Path() == path || obj.Parent() != pkg.Scope() {
			continue
		}
		key := [2]string{pkg.Path(), obj.Name()}
		got := u[key]
		if t.profile.kindOf(t.fset.Position(id.Pos()).Filename) == test {
			got.byTests = true
		} else {
			got.byCode = true
		}
		u[key] = got
	}
}

// nameFigures are about the exported package-level names of a package.
type nameFigures struct {
	exported int
	tests    []string // named by tests of other packages, and by nothing else outside
	unused   []string // named by no other package
	reached  []string // of both, types that a user outside gets without naming them
}

// measureNames counts the exported names of a package and their users in the repository.
func measureNames(pkg *types.Package, all uses) nameFigures {
	var out nameFigures
	r := reach{pkg: pkg, seen: make(map[types.Type]bool), names: make(map[string]bool)}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() {
			continue
		}
		out.exported++
		switch got := all[[2]string{pkg.Path(), name}]; {
		case got.byCode:
			r.follow(obj.Type())
		case got.byTests:
			out.tests = append(out.tests, name)
		default:
			out.unused = append(out.unused, name)
		}
	}
	for _, name := range slices.Concat(out.tests, out.unused) {
		if r.names[name] {
			out.reached = append(out.reached, name)
		}
	}
	return out
}

// reach follows the exported parts of types to the types of a package that a value of them
// leads to: through fields, methods, parameters, results and elements.
type reach struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	names map[string]bool // of the types found
}

func (r *reach) follow(t types.Type) {
	if t == nil || r.seen[t] {
		return
	}
	r.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		r.note(t.Obj())
		r.follow(types.Unalias(t))
	case *types.Named:
		r.followNamed(t)
	case *types.Signature:
		r.followTuple(t.Params())
		r.followTuple(t.Results())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				r.follow(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				r.follow(m.Type())
			}
		}
	case *types.Map:
		r.follow(t.Key())
		r.follow(t.Elem())
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		r.follow(t.Elem())
	}
}

// followNamed follows a type of the package to what it is made of. A type of another
// package leads back only through its type arguments.
func (r *reach) followNamed(t *types.Named) {
	for arg := range t.TypeArgs().Types() {
		r.follow(arg)
	}
	if t.Obj().Pkg() != r.pkg {
		return
	}
	r.note(t.Obj())
	r.follow(t.Underlying())
	for m := range t.Methods() {
		if m.Exported() {
			r.follow(m.Type())
		}
	}
}

func (r *reach) followTuple(t *types.Tuple) {
	for v := range t.Variables() {
		r.follow(v.Type())
	}
}

func (r *reach) note(obj *types.TypeName) { r.names[obj.Name()] = true }
