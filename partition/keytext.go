package partition

import (
	"errors"
	"fmt"
	"strings"
)

// KeySeparator stands between the tokens of a key: "tool001:chamber1".
const KeySeparator = ":"

// A token may have the separator in it, as URNs, IPv6 addresses and times do. Written
// as it is, "a:b" and "c" would be the same key as "a" and "b:c", which is in another
// slot: one key with two owners. So a separator within a token is escaped, and the
// character that begins an escape is, too. Most tokens have neither.
var (
	escapeToken   = strings.NewReplacer("%", "%25", KeySeparator, "%3A")
	unescapeToken = strings.NewReplacer("%25", "%", "%3A", KeySeparator)
)

// JoinKey writes a key: its tokens with KeySeparator between them. Within a token ":"
// is written "%3A" and "%" is written "%25", so that keys of different tokens are
// never written alike. Message.Key, Config.Rebalance.Weights and Override.Key have keys in this form.
func JoinKey(tokens ...string) string {
	escaped := make([]string, len(tokens))
	for i, t := range tokens {
		escaped[i] = escapeToken.Replace(t)
	}
	return strings.Join(escaped, KeySeparator)
}

// SplitKey returns the tokens of a key that JoinKey wrote. A "%" that begins no escape
// stands for itself, so that a key can be written by hand.
func SplitKey(key string) []string {
	tokens := strings.Split(key, KeySeparator)
	for i, t := range tokens {
		tokens[i] = unescapeToken.Replace(t)
	}
	return tokens
}

// SlotOfKey is SlotOf for a key in its written form; see JoinKey.
func SlotOfKey(slots int, key string) int { return SlotOf(slots, SplitKey(key)...) }

// CheckKey reports why a key, written by JoinKey or by hand, can't be one of the
// messages of Config.Subject; nil if it can.
func (c Config) CheckKey(key string) error {
	p, err := parsePattern(c.Subject)
	if err != nil {
		return fmt.Errorf("checking key %q: %w", key, err)
	}
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
