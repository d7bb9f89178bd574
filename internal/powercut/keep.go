package powercut

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Keep is what survives a cut of what was written to files and not synced. The kernel may
// have written any part of it back.
type Keep int

const (
	// KeepNothing drops everything that was not synced.
	KeepNothing Keep = iota
	// KeepPrefix keeps, of each file, the first of the pages that were not synced.
	KeepPrefix
	// KeepTorn is KeepPrefix, and of the next page some sectors are kept: a torn write.
	KeepTorn
)

// String says what is kept.
func (k Keep) String() string {
	return [...]string{"nothing kept", "a part kept", "a part kept, the last write torn"}[k]
}

// What a disk writes at once, and what a kernel does.
const (
	sectorBytes = 512
	pageBytes   = 4096
)

// survival decides what survives a cut.
type survival struct {
	keep Keep
	rng  *rand.Rand
}

// carry copies what survives from a file system as the processes saw it to the one that
// has only what was synced. Names stay as they were synced, and a file that was put in
// another's place by a rename is left alone: its pages are not the other's.
func (s survival) carry(seen, synced string) error {
	return filepath.WalkDir(synced, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(synced, path)
		if err != nil {
			return err
		}
		same, err := sameFile(filepath.Join(seen, name), path)
		if err != nil || !same {
			return err
		}
		return s.carryFile(filepath.Join(seen, name), path)
	})
}

// carryFile copies some of the pages in which a file differs.
func (s survival) carryFile(seen, synced string) error {
	now, err := os.ReadFile(seen)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(synced)
	if err != nil {
		return err
	}
	pages := differing(now, before)
	if len(pages) == 0 {
		return nil
	}
	whole := s.rng.IntN(len(pages) + 1)
	f, err := os.OpenFile(synced, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for i, at := range pages[:min(whole+1, len(pages))] {
		page := now[at:min(at+pageBytes, len(now))]
		if i == whole {
			if s.keep != KeepTorn {
				break
			}
			page = page[:min(len(page), s.rng.IntN(pageBytes/sectorBytes)*sectorBytes)]
		}
		if _, err := f.WriteAt(page, int64(at)); err != nil {
			return fmt.Errorf("keeping a part of %s: %w", synced, err)
		}
	}
	return f.Sync()
}

// differing returns where pages begin that a file has now and had not before.
func differing(now, before []byte) (pages []int) {
	for at := 0; at < len(now); at += pageBytes {
		end := min(at+pageBytes, len(now))
		if end > len(before) || string(now[at:end]) != string(before[at:end]) {
			pages = append(pages, at)
		}
	}
	return pages
}
