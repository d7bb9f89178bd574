package main

import (
	"bytes"
	"go/ast"
	"go/scanner"
	"go/token"
	"unicode/utf8"
)

// longLine is the number of columns that a line should not exceed.
const longLine = 120

// tab is how many columns a tab counts as.
const tab = 4

// lineFigures are about the lines of some files.
type lineFigures struct {
	all     int
	code    int // with code, perhaps beside a comment
	comment int // with a comment and no code
	header  int // with a comment above the package clause that isn't the package's doc comment
	blank   int
	long    int // over longLine columns
}

// measureLines counts the lines of some files.
func measureLines(t *tree, files []*source) lineFigures {
	var out lineFigures
	for _, f := range files {
		out.add(f.text, headerLines(t, f))
	}
	return out
}

// written is how many lines are code or comments. A header is left out: a license explains
// no code, and some repositories have one in every file.
func (l *lineFigures) written() int { return l.code + l.comment }

// add counts the lines of one file, of which some are its header.
func (l *lineFigures) add(text []byte, header map[int]bool) {
	code, comment := coveredLines(text)
	n := 0
	for line := range bytes.Lines(text) {
		n++
		isBlank := len(bytes.TrimSpace(line)) == 0
		switch {
		case code[n]:
			l.code++
		case isBlank:
			l.blank++
		case header[n]:
			l.header++
		case comment[n]:
			l.comment++
		}
		if columns(line) > longLine {
			l.long++
		}
	}
	l.all += n
}

// columns is the width of a line, in which tabs are only expected at its start.
func columns(line []byte) int {
	line = bytes.TrimRight(line, "\r\n")
	return utf8.RuneCount(line) + (tab-1)*bytes.Count(line, []byte("\t"))
}

// headerLines returns the numbers of the lines that a license or a build constraint has.
func headerLines(t *tree, f *source) map[int]bool {
	out := make(map[int]bool)
	for _, group := range f.syntax.Comments {
		if group == f.syntax.Doc || group.Pos() > f.syntax.Package {
			continue
		}
		for n := t.fset.Position(group.Pos()).Line; n <= t.fset.Position(group.End()).Line; n++ {
			out[n] = true
		}
	}
	return out
}

// coveredLines returns the numbers of the lines that code and comments cover.
func coveredLines(text []byte) (code, comment map[int]bool) {
	code, comment = make(map[int]bool), make(map[int]bool)
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return code, comment
		}
		// The newline that ends a statement is a token, too.
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}

		covered := code
		if tok == token.COMMENT {
			covered = comment
		}
		first := file.Line(pos)
		for i := range 1 + bytes.Count([]byte(lit), []byte("\n")) {
			covered[first+i] = true
		}
	}
}

// docFigures are about the doc comments of exported names.
type docFigures struct{ exported, documented int }

// measureDocs counts the exported functions, methods and types, and those of them with a doc
// comment. A method counts if its name is exported, even if its type isn't. Constants and
// variables are left out, since a group of them often has one comment.
func measureDocs(files []*source) docFigures {
	var out docFigures
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				out.count(d.Name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						out.count(s.Name, d.Doc, s.Doc)
					}
				}
			}
		}
	}
	return out
}

func (d *docFigures) count(name *ast.Ident, comments ...*ast.CommentGroup) {
	if !name.IsExported() {
		return
	}
	d.exported++
	for _, c := range comments {
		if c != nil {
			d.documented++
			return
		}
	}
}
