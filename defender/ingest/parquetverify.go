package ingest

import (
	"bytes"
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
func verifyParquetPages(data []byte, f *parquet.File) error {
	for i, group := range f.Metadata().RowGroups {
		for j := range group.Columns {
			if err := verifyParquetChunk(data, &group.Columns[j].MetaData); err != nil {
				return fmt.Errorf("column %d of row group %d: %w", j+1, i+1, err)
			}
		}
	}
	return nil
}

func verifyParquetChunk(data []byte, chunk *format.ColumnMetaData) error {
	start := chunk.DataPageOffset
	if dictionary := chunk.DictionaryPageOffset; dictionary > 0 && dictionary < start {
		start = dictionary
	}
	size := int64(len(data))
	if start < 0 || start > size || chunk.TotalCompressedSize < 0 || chunk.TotalCompressedSize > size-start {
		return errors.New("it lies beyond the end of the file")
	}
	rest := bytes.NewReader(data[start : start+chunk.TotalCompressedSize])
	for rest.Len() > 0 {
		var header format.PageHeader
		if err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(rest)).Decode(&header); err != nil {
			return fmt.Errorf("a page's header: %w", err)
		}
		if header.CompressedPageSize < 0 || int(header.CompressedPageSize) > rest.Len() {
			return errors.New("a page lies beyond the end of its column")
		}
		if header.UncompressedPageSize < 0 || header.UncompressedPageSize > maxPageBytes {
			return fmt.Errorf("a page claims to have %d bytes, at most %d are taken", header.UncompressedPageSize, maxPageBytes)
		}
		if _, err := rest.Seek(int64(header.CompressedPageSize), io.SeekCurrent); err != nil {
			return err
		}
	}
	return nil
}
