package gem

import (
	"fmt"
	"sync"
	"time"
)

// Notices of one kind that are given at once, and how long it takes until one more is.
const (
	noticeBurst = 20
	noticeEvery = time.Minute
)

// notices keeps equipment that repeats a mistake, such as a trace that can't be read, from
// burying what else people should know. Its zero value is ready; it is safe for concurrent use.
type notices struct {
	mu    sync.Mutex
	kinds map[string]*noticeKind
	once  map[string]bool
}

// noticeKind is what was said in the same words, except for figures and names.
type noticeKind struct {
	left    int       // how many may be given at once
	since   time.Time // when left was right
	dropped int       // since the last one that was given
}

// pass reports whether a notice of a kind is given, and how many were not since the last.
func (n *notices) pass(kind string, now time.Time) (given bool, dropped int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.kinds[kind]
	if k == nil {
		k = &noticeKind{left: noticeBurst, since: now}
		if n.kinds == nil {
			n.kinds = map[string]*noticeKind{}
		}
		n.kinds[kind] = k
	}
	if more := int(now.Sub(k.since) / noticeEvery); more > 0 {
		k.left, k.since = min(k.left+more, noticeBurst), k.since.Add(time.Duration(more)*noticeEvery)
	}
	if k.left == 0 {
		k.dropped++
		return false, 0
	}
	k.left--
	dropped, k.dropped = k.dropped, 0
	return true, dropped
}

// maxOnce is how many texts are remembered as given.
const maxOnce = 1000

// first reports whether a text wasn't given before. Of too many, others are not given at all.
func (n *notices) first(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.once[text] || len(n.once) >= maxOnce {
		return false
	}
	if n.once == nil {
		n.once = map[string]bool{}
	}
	n.once[text] = true
	return true
}

// notice tells people of something that equipment may do again and again.
func (s *session) notice(format string, args ...any) {
	given, dropped := s.notices.pass(format, time.Now())
	if !given {
		return
	}
	text := fmt.Sprintf(format, args...)
	if dropped > 0 {
		text += fmt.Sprintf(" (and %d like it that were not reported)", dropped)
	}
	s.report(Notice, "%s", text)
}

// noticeOnce tells people of something that equipment would have them told of again.
func (s *session) noticeOnce(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); s.notices.first(text) {
		s.report(Notice, "%s", text)
	}
}
