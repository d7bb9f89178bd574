package partition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// pattern is a subject with single-token wildcards, "dc.*.*.completion". The
// wildcards, in order, are the key.
type pattern struct {
	subject string
	tokens  []string
	wild    []int // positions of the wildcards in tokens
}

func parsePattern(subject string) (pattern, error) {
	p := pattern{subject: subject, tokens: strings.Split(subject, ".")}
	for i, t := range p.tokens {
		switch {
		case t == "*":
			p.wild = append(p.wild, i)
		case t == "" || strings.ContainsAny(t, "*> \t\r\n"):
			return pattern{}, fmt.Errorf("token %d of %q is not a literal or a single \"*\": write a subject such as \"dc.*.*.completion\", whose wildcards are the key", i+1, subject)
		}
	}
	if len(p.wild) == 0 {
		return pattern{}, fmt.Errorf("%q has no \"*\": its wildcards are the key, so at least one is needed", subject)
	}
	return p, nil
}

// of returns the subject of a key, which has a token for each wildcard.
func (p pattern) of(key []string) string {
	tokens := slices.Clone(p.tokens)
	for i, at := range p.wild {
		tokens[at] = key[i]
	}
	return strings.Join(tokens, ".")
}

// key returns the tokens of a subject that fit the wildcards.
func (p pattern) key(subject string) ([]string, error) {
	tokens := strings.Split(subject, ".")
	fits := len(tokens) == len(p.tokens)
	for i := 0; fits && i < len(tokens); i++ {
		fits = checkToken(tokens[i]) == nil && (p.tokens[i] == "*" || p.tokens[i] == tokens[i])
	}
	if !fits {
		return nil, fmt.Errorf("subject %q is none that %q stands for", subject, p.subject)
	}
	key := make([]string, len(p.wild))
	for i, at := range p.wild {
		key[i] = tokens[at]
	}
	return key, nil
}

// overlaps reports whether a published subject can be one of this pattern and also
// begin with these literal tokens, "a.b.", and go on after them.
func (p pattern) overlaps(prefix string) bool {
	literal := strings.Split(strings.TrimSuffix(prefix, "."), ".")
	if len(p.tokens) <= len(literal) {
		return false
	}
	for i, t := range literal {
		if p.tokens[i] != "*" && p.tokens[i] != t {
			return false
		}
	}
	return true
}

var (
	errEmptyToken     = errors.New("is empty")
	errTokenCharacter = errors.New(`contains one of ".", "*", ">" or a blank, which no part of a key can`)
)

// checkToken reports why a subject that is published can't have this token.
func checkToken(t string) error {
	switch {
	case t == "":
		return errEmptyToken
	case strings.ContainsAny(t, ".*> \t\r\n"):
		return errTokenCharacter
	}
	return nil
}

// checkKey reports why a key, in its written form, can't be one of the pattern's subjects.
func (p pattern) checkKey(key string) error {
	tokens := SplitKey(key)
	for i, t := range tokens {
		if err := checkToken(t); err != nil {
			return fmt.Errorf("token %d%s of key %q %w: write the key's parts with %q between them", i+1, quoted(t), key, err, KeySeparator)
		}
	}
	if len(tokens) != len(p.wild) {
		example := make([]string, len(p.wild))
		for i := range example {
			example[i] = fmt.Sprintf("part%d", i+1)
		}
		return fmt.Errorf("key %q has %s, and %q has %d: write it as %s, with %q for a %q within a part",
			key, counted(len(tokens), "token"), p.subject, len(p.wild), JoinKey(example...), "%3A", KeySeparator)
	}
	return nil
}

func quoted(token string) string {
	if token == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", token)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// fill returns the subject with these tokens in the place of the wildcards.
func (p pattern) fill(wild []string) string {
	size := len(p.subject)
	for _, t := range wild {
		size += len(t)
	}
	var b strings.Builder
	b.Grow(size)
	for i, t := range p.tokens {
		if i > 0 {
			b.WriteByte('.')
		}
		if len(wild) > 0 && t == "*" {
			t, wild = wild[0], wild[1:]
		}
		b.WriteString(t)
	}
	return b.String()
}
