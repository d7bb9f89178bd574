package main

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/quantity"
)

// figures are everything that is measured of one tree.
type figures struct {
	subject subject
	lines   [kinds]lineFigures
	text    lineFigures // of product and rig together, as everything below
	files   int
	docs    docFigures
	funcs   functionFigures
	tests   functionFigures
	types   []*typeFigures

	mainPackage string // the name of the package that stands for the tree
	mainFiles   int
	mainArrows  arrows
	mainNames   nameFigures
	arrows      int // of all packages
	back        int
}

// measure measures a tree whose types are checked.
func measure(t *tree, c *checked) figures {
	files := t.measured(product, rig)
	out := figures{
		subject: t.subject,
		text:    measureLines(t, files),
		files:   len(files),
		docs:    measureDocs(files),
		funcs:   measureFunctions(t, files),
		tests:   measureFunctions(t, t.measured(test)),
		types:   measureTypes(files),
	}
	for k := range kinds {
		out.lines[k] = measureLines(t, t.measured(k))
	}

	dirs := make(map[string]string)
	for _, f := range files {
		dirs[f.dir()] = f.importPath
	}
	for dir := range dirs {
		out.arrows += c.arrows[dir].count()
		out.back += c.arrows[dir].back()
	}

	dir := t.mainPackage()
	out.mainArrows = c.arrows[dir]
	out.mainFiles = len(out.mainArrows.files)
	if pkg := c.packages[dirs[dir]]; pkg != nil {
		out.mainPackage = pkg.Name()
		out.mainNames = measureNames(pkg, c.uses)
	}
	return out
}

// row is one line of the table: a heading without a value, or a figure.
type row struct {
	title string
	value func(figures) string
}

// rows are the lines of the table, in their order.
func rows() []row {
	var out []row
	for _, group := range [][]row{sizeRows(), functionRows(), textRows(), typeRows(), packageRows()} {
		out = append(out, group...)
	}
	return out
}

func sizeRows() []row {
	return []row{
		{"**Lines**", nil},
		{"product", func(f figures) string { return thousands(f.lines[product].all) }},
		{"rig", func(f figures) string { return thousands(f.lines[rig].all) }},
		{"tests", func(f figures) string { return thousands(f.lines[test].all) }},
		{"product without comments and blank lines", func(f figures) string { return thousands(f.lines[product].code) }},
		{"files of product and rig", func(f figures) string { return thousands(f.files) }},
	}
}

func functionRows() []row {
	over := func(f figures) string {
		return percent(f.funcs.share(func(fn function) bool { return fn.lines > longFunction }))
	}
	complicated := func(f figures) string {
		return percent(f.funcs.share(func(fn function) bool { return fn.complexity > complexFunction }))
	}
	return []row{
		{"**Functions**", nil},
		{"functions", func(f figures) string { return thousands(len(f.funcs.all)) }},
		{"mean length", func(f figures) string { return fmt.Sprintf("%.1f", f.funcs.mean()) }},
		{"95th percentile", func(f figures) string { return fmt.Sprint(f.funcs.percentile(95)) }},
		{"99th percentile", func(f figures) string { return fmt.Sprint(f.funcs.percentile(99)) }},
		{"longest", func(f figures) string { return named(f.funcs.longest().lines, f.funcs.longest().name) }},
		{fmt.Sprintf("over %d lines", longFunction), over},
		{fmt.Sprintf("complexity over %d", complexFunction), complicated},
		{"highest complexity", func(f figures) string {
			return named(f.funcs.mostComplex().complexity, f.funcs.mostComplex().name)
		}},
		{"mean length of functions in tests", func(f figures) string { return fmt.Sprintf("%.1f", f.tests.mean()) }},
	}
}

func textRows() []row {
	return []row{
		{"**Text**", nil},
		{"comment lines", func(f figures) string { return percent(ratio(f.text.comment, f.text.written())) }},
		{"comment lines in tests", func(f figures) string {
			return percent(ratio(f.lines[test].comment, f.lines[test].written()))
		}},
		{"blank lines", func(f figures) string { return percent(ratio(f.text.blank, f.text.all)) }},
		{fmt.Sprintf("lines over %d columns", longLine), func(f figures) string {
			return percent(ratio(f.text.long, f.text.written()))
		}},
		{"exported functions, methods and types with a doc comment", func(f figures) string {
			return percent(ratio(f.docs.documented, f.docs.exported))
		}},
	}
}

// rankedTypes is how many types are shown by methods, and by fields.
const rankedTypes = 3

func typeRows() []row {
	methods := func(t *typeFigures) int { return t.methods }
	fields := func(t *typeFigures) int { return t.fields }
	out := []row{{"**Types with the most methods**", nil}}
	for i := range rankedTypes {
		out = append(out, row{fmt.Sprint(i + 1), ranked(i, methods)})
	}
	out = append(out, row{"types in more than one file", func(f figures) string {
		return partOf(len(scattered(f.types)), len(f.types))
	}})
	out = append(out, row{"**Structs with the most fields**", nil})
	for i := range rankedTypes {
		out = append(out, row{fmt.Sprint(i + 1), ranked(i, fields)})
	}
	return out
}

// ranked shows the type at a place of the order by what a function counts.
func ranked(i int, count func(*typeFigures) int) func(figures) string {
	return func(f figures) string {
		all := largest(f.types, i+1, count)
		if len(all) <= i || count(all[i]) == 0 {
			return "–"
		}
		t := all[i]
		counts := []string{quantity.Of(t.methods, "method"), quantity.Of(t.fields, "field"), quantity.Of(len(t.files), "file")}
		return fmt.Sprintf("`%s`: %s", t.name, strings.Join(counts, ", "))
	}
}

func packageRows() []row {
	return []row{
		{"**References between the files of a package**", nil},
		{"arrows in all packages", func(f figures) string { return thousands(f.arrows) }},
		{"of these, arrows that run back up", func(f figures) string { return partOf(f.back, f.arrows) }},
		{"**One package**", nil},
		{"the package", func(f figures) string { return "`" + f.mainPackage + "`" }},
		{"files", func(f figures) string { return fmt.Sprint(f.mainFiles) }},
		{"arrows between its files", func(f figures) string { return thousands(f.mainArrows.count()) }},
		{"of these, arrows that run back up", func(f figures) string {
			return partOf(f.mainArrows.back(), f.mainArrows.count())
		}},
		{"exported names", func(f figures) string { return thousands(f.mainNames.exported) }},
		{"named by no other package", func(f figures) string { return thousands(len(f.mainNames.unused)) }},
		{"named only by tests of other packages", func(f figures) string { return thousands(len(f.mainNames.tests)) }},
		{"of these two, types that the other names lead to", func(f figures) string {
			return thousands(len(f.mainNames.reached))
		}},
	}
}
