package main

import (
	"fmt"
	"regexp"
	"strings"
)

// page is a page of the documentation, measured.
type page struct {
	path      string
	words     int
	sentences []string // of text and lists
	cells     []string // sentences in cells of tables
}

var (
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	listItem    = regexp.MustCompile(`^(?:[-*]|\d+\.) `)
	sentenceEnd = regexp.MustCompile(`[.!?][)"”*_]*(?: +|$)|: *$`)
	wordPattern = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// newPage measures the text of a page.
func newPage(path, text string) page {
	p := page{path: path}

	paragraph, inCode := "", false
	end := func() {
		p.sentences = append(p.sentences, split(paragraph)...)
		paragraph = ""
	}
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			end()
			inCode = !inCode
			continue
		case inCode, paragraph == "" && strings.HasPrefix(line, "    "):
			continue
		case trimmed == "", strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "!["):
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for cell := range strings.SplitSeq(inlineCode.ReplaceAllString(trimmed, "code"), "|") {
				p.cells = append(p.cells, split(cell)...)
			}
		default:
			if listItem.MatchString(trimmed) {
				end()
				trimmed = listItem.ReplaceAllString(trimmed, "")
			}
			paragraph += " " + trimmed
		}
		p.words += countWords(trimmed)
	}
	end()
	return p
}

// split divides a paragraph into its sentences.
func split(paragraph string) []string {
	plain := linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(paragraph, "code"), "]")
	plain = strings.TrimSpace(plain)

	var out []string
	for plain != "" {
		end := len(plain)
		for _, at := range sentenceEnd.FindAllStringIndex(plain, -1) {
			if !continues(plain[:at[0]], plain[at[1]:]) {
				end = at[1]
				break
			}
		}
		if sentence := strings.TrimSpace(plain[:end]); countWords(sentence) > 0 {
			out = append(out, sentence)
		}
		plain = strings.TrimSpace(plain[end:])
	}
	return out
}

// continues reports whether a full stop between two texts doesn't end a sentence, as in
// "e.g. this" or "version 1. of".
func continues(before, after string) bool {
	if after == "" {
		return false
	}
	abbreviated := strings.HasSuffix(before, "e.g") || strings.HasSuffix(before, "i.e") || strings.HasSuffix(before, " no")
	return abbreviated || strings.ToLower(after[:1]) == after[:1] && after[0] >= 'a' && after[0] <= 'z' && !strings.HasPrefix(after, "code")
}

func countWords(text string) int {
	n := 0
	for field := range strings.FieldsSeq(text) {
		if wordPattern.MatchString(field) {
			n++
		}
	}
	return n
}

// mean returns the words of a sentence on average.
func (p page) mean() float64 {
	if len(p.sentences) == 0 {
		return 0
	}
	words := 0
	for _, s := range p.sentences {
		words += countWords(s)
	}
	return float64(words) / float64(len(p.sentences))
}

// longest returns the words of the longest sentence, in text or table.
func (p page) longest() int {
	most := 0
	for _, sentences := range [][]string{p.sentences, p.cells} {
		for _, s := range sentences {
			most = max(most, countWords(s))
		}
	}
	return most
}

// problems says what is over the limits, one line each.
func (p page) problems() []string {
	var out []string
	if mean := p.mean(); mean >= maxMean {
		out = append(out, fmt.Sprintf("%s: %.1f words per sentence, not under %.0f", p.path, mean, maxMean))
	}
	for _, sentences := range [][]string{p.sentences, p.cells} {
		for _, s := range sentences {
			if n := countWords(s); n > maxSentence {
				out = append(out, fmt.Sprintf("%s: a sentence of %d words: %s", p.path, n, s))
			}
		}
	}
	return out
}

// What a page is held to.
const (
	maxMean     = 18.0 // words of a sentence, over a page
	maxSentence = 35   // words
)
