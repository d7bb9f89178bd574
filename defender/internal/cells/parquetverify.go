package cells

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPageBytes is the most that a page may take, compressed or not. Writers make pages of about 1 MB.
const maxPageBytes = 1 << 26

// verifyParquetPages returns an error if a page claims to be larger than the file or than maxPageBytes: the
// library makes room for a page before it reads it.
func verifyParquetPages(r io.ReaderAt, size int64, f *parquet.File) error {
	for i, group := range f.Metadata().RowGroups {
		for j := range group.Columns {
			if err := verifyParquetChunk(r, size, &group.Columns[j].MetaData); err != nil {
				return fmt.Errorf("column %d of row group %d: %w", j+1, i+1, err)
			}
		}
	}
	return nil
}

func verifyParquetChunk(r io.ReaderAt, size int64, chunk *format.ColumnMetaData) error {
	start := chunk.DataPageOffset
	if dictionary := chunk.DictionaryPageOffset; dictionary > 0 && dictionary < start {
		start = dictionary
	}
	if start < 0 || start > size || chunk.TotalCompressedSize < 0 || chunk.TotalCompressedSize > size-start {
		return errors.New("it lies beyond the end of the file")
	}
	for at, end := start, start+chunk.TotalCompressedSize; at < end; {
		header, length, err := readPageHeader(r, at, end)
		if err != nil {
			return fmt.Errorf("a page's header: %w", err)
		}
		at += length
		if header.CompressedPageSize < 0 || int64(header.CompressedPageSize) > end-at {
			return errors.New("a page lies beyond the end of its column")
		}
		if header.UncompressedPageSize < 0 || header.UncompressedPageSize > maxPageBytes {
			return fmt.Errorf("a page claims to have %d bytes, at most %d are taken", header.UncompressedPageSize, maxPageBytes)
		}
		at += int64(header.CompressedPageSize)
	}
	return nil
}

// readPageHeader reads the header of a page that begins at a place of the file, and returns how
// long it is.
func readPageHeader(r io.ReaderAt, at, end int64) (header format.PageHeader, length int64, err error) {
	const usual = 256 // bytes of a header, or fewer
	section := io.NewSectionReader(r, at, end-at)
	buffered := bufio.NewReaderSize(section, usual)
	if err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(buffered)).Decode(&header); err != nil {
		return header, 0, err
	}
	read, err := section.Seek(0, io.SeekCurrent)
	return header, read - int64(buffered.Buffered()), err
}
