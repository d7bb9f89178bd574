package console

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// compressed compresses what a handler answers, for clients that take gzip. Without it a console of 150 workers is more than 200 kB
// of scripts and JSON.
func compressed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !takesGzip(r) {
			h.ServeHTTP(w, r)
			return
		}
		r.Header.Del("Range") // of what would be compressed, it would be another part
		c := &compressor{ResponseWriter: w}
		defer c.close()
		h.ServeHTTP(c, r)
	})
}

func takesGzip(r *http.Request) bool {
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(coding, ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(quality, " ", "") != "q=0"
		}
	}
	return false
}

// compressors are reused: each has 800 kB of tables.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compressor is an answer that is compressed from its first byte on. An answer without a body stays as it is.
type compressor struct {
	http.ResponseWriter
	body    *gzip.Writer // nil until there is a body
	started bool         // the header is written
}

// WriteHeader leaves status and header to the first Write, which knows whether there is a body, unless the status says so.
func (c *compressor) WriteHeader(status int) {
	if c.started {
		return
	}
	c.started = true
	if status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified {
		h := c.Header()
		h.Set("Content-Encoding", "gzip")
		h.Del("Content-Length")
		c.body = compressors.Get().(*gzip.Writer)
		c.body.Reset(c.ResponseWriter)
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.body == nil {
		return c.ResponseWriter.Write(b)
	}
	return c.body.Write(b)
}

// Flush sends what was written up to now: the stream of changes must not wait for a full block.
func (c *compressor) Flush() {
	if c.body != nil {
		_ = c.body.Flush()
	}
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (c *compressor) close() {
	if c.body == nil {
		return
	}
	_ = c.body.Close()
	c.body.Reset(nil) // it must not keep the connection
	compressors.Put(c.body)
}
