package trace

import (
	"bytes"
	"strings"
)

// foreignStarts are what files begin with that are neither CSV nor Parquet, and what to do.
var foreignStarts = []struct{ start, what string }{
	{"\x1f\x8b", "is compressed with gzip: decompress it first"},
	{"\x28\xb5\x2f\xfd", "is compressed with zstd: decompress it first"},
	{"PK\x03\x04", "is a ZIP archive, as workbooks of Excel are: unpack it, or save the sheet as CSV"},
	{"\xff\xfe", "is text in UTF-16: save it as UTF-8"},
	{"\xfe\xff", "is text in UTF-16: save it as UTF-8"},
	{"ARROW1", "is an Arrow file: write it as Parquet or CSV"},
}

// foreignStart returns what is wrong with a file that begins like this; nothing if it may be CSV.
func foreignStart(start []byte) string {
	for _, f := range foreignStarts {
		if bytes.HasPrefix(start, []byte(f.start)) {
			return f.what
		}
	}
	return ""
}

// foreignHeader returns what is wrong with a first line that holds one field, or line ends within
// it; nothing if it may be CSV.
func foreignHeader(header []string) string {
	for _, name := range header {
		if strings.Contains(strings.TrimSuffix(name, "\r"), "\r") {
			return "the lines end with a carriage return alone: write line feeds after them"
		}
	}
	if len(header) != 1 {
		return ""
	}
	for mark, name := range map[string]string{";": "semicolons", "\t": "tabs", "|": "bars"} {
		if strings.Contains(header[0], mark) {
			return "fields are separated by " + name + ": write commas between them, and points in numbers"
		}
	}
	return ""
}
