package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A frame is length and checksum of a payload, then the payload. Numbers are little-endian.
const (
	frameHeader = 8
	maxFrame    = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errTorn says that a file ends within a frame: a write that was cut off, and never acknowledged.
var errTorn = errors.New("torn frame")

// CorruptError says that a file is damaged where a crash alone can't have damaged it.
type CorruptError struct {
	File   string
	Offset int64
}

// Error names the file and the place, and what can be done.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: restore it from a backup, or move it away to start from what precedes it", e.File, e.Offset)
}

func appendFrame(buf, payload []byte) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(payload)))
	buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(payload, castagnoli))
	return append(buf, payload...)
}

// scanFrames calls f with every payload from offset on and returns the offset after the last whole frame. A torn end is no error
// here: the caller compares the returned offset with the file's size.
func scanFrames(file *os.File, offset int64, f func(payload []byte) error) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return offset, err
	}
	for offset < info.Size() {
		payload, err := readFrame(file, offset, info.Size())
		switch {
		case errors.Is(err, errTorn):
			return offset, nil
		case err != nil:
			return offset, err
		}
		if err := f(payload); err != nil {
			return offset, err
		}
		offset += frameHeader + int64(len(payload))
	}
	return offset, nil
}

// readFrame reads the frame at offset of a file of that size. A bad frame that reaches the end of the file is torn; one that is
// followed by something else can't be, since frames are acknowledged in order.
func readFrame(file *os.File, offset, size int64) ([]byte, error) {
	if size-offset < frameHeader {
		return nil, errTorn
	}
	var head [frameHeader]byte
	if _, err := file.ReadAt(head[:], offset); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:4]))
	end := offset + frameHeader + n
	if end > size {
		if n > maxFrame && !zeroFrom(file, offset, size) {
			return nil, &CorruptError{file.Name(), offset}
		}
		return nil, errTorn
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(file, offset+frameHeader, n), payload); err != nil {
		return nil, err
	}
	if n > 0 && crc32.Checksum(payload, castagnoli) == binary.LittleEndian.Uint32(head[4:]) {
		return payload, nil
	}
	// Some file systems extend a file before its data reaches the disk: the end is then zeros.
	if zeroFrom(file, end, size) {
		return nil, errTorn
	}
	return nil, &CorruptError{file.Name(), offset}
}

func zeroFrom(file *os.File, offset, size int64) bool {
	buf := make([]byte, 4096)
	for offset < size {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), size-offset)], offset)
		if err != nil && err != io.EOF {
			return false
		}
		for _, b := range buf[:n] {
			if b != 0 {
				return false
			}
		}
		offset += int64(n)
	}
	return true
}
