package ingest

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// Format is how a table is written, named by its media type.
type Format string

// The formats.
const (
	CSV         Format = "text/csv"
	JSON        Format = "application/json"
	Parquet     Format = "application/vnd.apache.parquet"
	ArrowStream Format = "application/vnd.apache.arrow.stream"
	ArrowFile   Format = "application/vnd.apache.arrow.file"
)

// Formats lists all formats.
var Formats = []Format{CSV, JSON, Parquet, ArrowStream, ArrowFile}

// readers give a table the cells of what is written in a format.
var readers = map[Format]func(data []byte, t *table) error{
	CSV:         readCSV,
	JSON:        readJSON,
	Parquet:     guarded("Parquet file", readParquet),
	ArrowStream: guarded("Arrow stream", readArrowStream),
	ArrowFile:   guarded("Arrow file", readArrowFile),
}

// FormatOf returns the format that a Content-Type names. The error is a [*Refusal].
func FormatOf(contentType string) (Format, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if _, ok := readers[Format(media)]; err != nil || !ok {
		return "", unknownFormat(contentType)
	}
	return Format(media), nil
}

func unknownFormat(name string) error {
	known := make([]string, len(Formats))
	for i, f := range Formats {
		known[i] = string(f)
	}
	return refuse(http.StatusUnsupportedMediaType, "Content-Type %q is no format that is taken: give one of %s", name, strings.Join(known, ", "))
}

// guarded returns a reader that takes a panic of somebody else's decoder for an error of the input.
func guarded(what string, read func([]byte, *table) error) func([]byte, *table) error {
	return func(data []byte, t *table) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = corrupt(what, fmt.Errorf("%v", p))
			}
		}()
		return read(data, t)
	}
}

// corrupt is the error of bytes that are not in their format.
func corrupt(what string, err error) error {
	if errors.Is(err, errTooLarge) || errors.Is(err, errEnough) {
		return err
	}
	if p := new(Problems); errors.As(err, &p) {
		return p
	}
	return problem("", "this is no %s that can be read: %v: write it again, or check Content-Type", what, err)
}

// refusalOf gives the error of a trace that is too large its status.
func refusalOf(err error) error {
	if errors.Is(err, errTooLarge) {
		return &Refusal{Status: http.StatusRequestEntityTooLarge, Err: err}
	}
	return err
}
