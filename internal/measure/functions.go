package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"
)

// What a function should not exceed.
const (
	longFunction    = 60 // lines
	complexFunction = 10 // cyclomatic complexity
)

// function is one function or method with a body.
type function struct {
	name       string // with its package's, as in partition.machine.Step
	lines      int
	complexity int
}

// functionFigures are about the functions of some files.
type functionFigures struct {
	all []function // by their lengths
}

// measureFunctions measures every function and method that is declared with a body. A
// function literal counts into the function around it.
func measureFunctions(t *tree, files []*source) functionFigures {
	var out functionFigures
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			out.all = append(out.all, function{
				name:       qualified(f, fn),
				lines:      t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1,
				complexity: complexity(fn.Body),
			})
		}
	}
	slices.SortStableFunc(out.all, func(a, b function) int { return cmp.Compare(a.lines, b.lines) })
	return out
}

// qualified is a function's name behind those of its package and its receiver's type.
func qualified(f *source, fn *ast.FuncDecl) string {
	name := f.syntax.Name.Name + "."
	if receiver := receiverType(fn); receiver != "" {
		name += receiver + "."
	}
	return name + fn.Name.Name
}

// complexity is 1, and 1 more for each if, for, case and communication clause but the
// default ones, && and ||.
func complexity(body *ast.BlockStmt) int {
	n := 1
	ast.Inspect(body, func(node ast.Node) bool {
		switch s := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if s.List != nil {
				n++
			}
		case *ast.CommClause:
			if s.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if s.Op == token.LAND || s.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// mean is the mean length.
func (f functionFigures) mean() float64 {
	sum := 0
	for _, fn := range f.all {
		sum += fn.lines
	}
	return ratio(sum, len(f.all))
}

// percentile is the length that p percent of the functions don't exceed.
func (f functionFigures) percentile(p int) int {
	if len(f.all) == 0 {
		return 0
	}
	rank := (p*len(f.all) + 99) / 100
	return f.all[max(rank, 1)-1].lines
}

// longest is the function with the most lines.
func (f functionFigures) longest() function {
	if len(f.all) == 0 {
		return function{}
	}
	return f.all[len(f.all)-1]
}

// mostComplex is the function with the highest complexity.
func (f functionFigures) mostComplex() function {
	var most function
	for _, fn := range f.all {
		if fn.complexity > most.complexity {
			most = fn
		}
	}
	return most
}

// share is the part of the functions for which a condition holds.
func (f functionFigures) share(holds func(function) bool) float64 {
	n := 0
	for _, fn := range f.all {
		if holds(fn) {
			n++
		}
	}
	return ratio(n, len(f.all))
}

// ratio is a/b, and 0 for nothing of nothing.
func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
